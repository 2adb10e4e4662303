"""Models behind the Anthropic Messages API.

Joins wire format, endpoint and key; the format itself is in `anthropic_wire`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolfleet.errors import InvalidSettings
from toolfleet.misspelt import exact
from toolfleet.orchestrator.models.anthropic_wire import AnthropicWire
from toolfleet.orchestrator.models.http import Credentials, Endpoint, HttpOptions, secret
from toolfleet.orchestrator.models.http_model import HttpChatModel
from toolfleet.orchestrator.models.provider_tools import checked

ANTHROPIC_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
# The API has no default. Enough for a long answer and a hundred calls; every current model allows it.
DEFAULT_MAX_TOKENS = 8192


@exact()
class AnthropicMessages(HttpChatModel):
    """A model that speaks Anthropic's Messages API.

    Without `base_url`, address and key come from ANTHROPIC_BASE_URL (default: Anthropic) and ANTHROPIC_API_KEY; with
    it, the key is `api_key` alone. `max_tokens` bounds each reply, its thoughts included. `sees=False` is for a model
    that takes no images. Extended thinking is switched on with `extra_body`; its signed blocks stay in the history and
    go back with their calls. `provider_tools` are tools that Anthropic runs itself, in its own words
    (`{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}`), offered beside the fleet's; what they
    do stays in the history, and goes back to Anthropic only. `betas` go into each request's `anthropic-beta`.

    Raises InvalidSettings if Anthropic itself is to be asked and there is no key, and for what is no provider's tool.
    """

    provider: Final = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        stream: bool = True,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        sees: bool = True,
        provider_tools: Sequence[Mapping[str, Any]] = (),
        betas: Sequence[str] = (),
        http: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if base_url is None:
            base_url = os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_BASE_URL
            api_key = api_key or os.environ.get("ANTHROPIC_API_KEY")
        if base_url == ANTHROPIC_BASE_URL and not api_key:
            raise InvalidSettings("Anthropic asks for a key: set ANTHROPIC_API_KEY, or pass api_key")
        credentials = Credentials(
            key=secret(api_key, "ANTHROPIC_API_KEY"),
            header="x-api-key",
            key_variable="ANTHROPIC_API_KEY",
            model_variable="ANTHROPIC_MODEL",
        )
        options = http or HttpOptions()
        headers = {"anthropic-version": API_VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}
        super().__init__(
            model,
            AnthropicWire(max_tokens=max_tokens, sees=sees, provider_tools=checked(provider_tools)),
            Endpoint(base_url, credentials, options, headers),
            stream=stream,
            http=options,
            extra_body=extra_body,
        )
