"""Models behind the Chat Completions API: OpenAI, vLLM, Ollama, LM Studio, LiteLLM, DeepSeek, Qwen, Gemini and others.

Joins wire format, endpoint and key; the format itself is in `openai_wire`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolfleet.errors import InvalidSettings
from toolfleet.misspelt import exact
from toolfleet.orchestrator.models.http import Credentials, Endpoint, HttpOptions, secret
from toolfleet.orchestrator.models.http_model import HttpChatModel
from toolfleet.orchestrator.models.openai_options import offered_by
from toolfleet.orchestrator.models.openai_wire import OpenAIWire
from toolfleet.orchestrator.models.provider_tools import checked

OPENAI_BASE_URL = "https://api.openai.com/v1"

OPENAIS_SEEING: Final = re.compile(
    r"(.*/)?(gpt-4o|gpt-4\.1|gpt-4-turbo|chatgpt-4o|gpt-([5-9]|\d\d)|o[134](?!-mini)|o4-mini)"
)
"""How the names of OpenAI's own models begin that take images, also behind a proxy."""


@exact()
class OpenAIChat(HttpChatModel):
    """A model that speaks Chat Completions.

    Without `base_url`, address and key come from OPENAI_BASE_URL (default: OpenAI) and OPENAI_API_KEY. With
    `base_url`, the key is `api_key` alone: the variable's key is not shown to a server it was not meant for.
    `stream=False` uses the endpoint's answer in one piece. `usage_in_stream=False` is for servers that refuse
    `stream_options`. `sees=True` shows the model images, those of tools and of users; None goes by the name of OpenAI's
    own models, and takes any other for one that does not see. `extra_body` goes into every request (temperature,
    reasoning_effort, …), its `max_tokens` or `max_completion_tokens` under the name that the model takes.
    `provider_tools` are tools that the server runs itself, offered beside the fleet's as entries of `tools`
    (`{"type": "openrouter:web_search"}`). OpenAI's own Chat Completions has one, `{"type": "web_search"}`, which goes
    as its `web_search_options`.

    Raises InvalidSettings if OpenAI itself is to be asked and there is no key, and for what is no provider's tool.
    """

    provider: Final = "openai"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        stream: bool = True,
        usage_in_stream: bool = True,
        sees: bool | None = None,
        provider_tools: Sequence[Mapping[str, Any]] = (),
        http: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL
            api_key = api_key or os.environ.get("OPENAI_API_KEY")
        if base_url == OPENAI_BASE_URL and not api_key:
            raise InvalidSettings("OpenAI asks for a key: set OPENAI_API_KEY, or pass api_key")
        credentials = Credentials(
            key=secret(api_key, "OPENAI_API_KEY"),
            header="authorization",
            prefix="Bearer ",
            key_variable="OPENAI_API_KEY",
            model_variable="OPENAI_MODEL",
        )
        options = http or HttpOptions()
        endpoint = Endpoint(base_url, credentials, options)
        tools, web_search = offered_by(endpoint.host, checked(provider_tools))
        super().__init__(
            model,
            OpenAIWire(
                usage_in_stream=usage_in_stream,
                sees=bool(OPENAIS_SEEING.match(model)) if sees is None else sees,
                provider_tools=tools,
                web_search=web_search,
            ),
            endpoint,
            stream=stream,
            http=options,
            extra_body=extra_body,
        )
