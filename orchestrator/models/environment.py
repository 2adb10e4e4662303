"""The model that the environment's variables describe.

Reads variables; asks nobody whether the key works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.models.anthropic import ANTHROPIC_BASE_URL, AnthropicMessages
from toolfleet.orchestrator.models.http import HttpOptions
from toolfleet.orchestrator.models.openai import OPENAI_BASE_URL, OpenAIChat
from toolfleet.orchestrator.models.protocol import ChatModel

DEFAULT_OPENAI_MODEL = "gpt-5.2"
DEFAULT_ANTHROPIC_MODEL = "claude-sonnet-4-5"


def model_from_environment(
    environ: Mapping[str, str] | None = None, *, http: HttpOptions | None = None
) -> ChatModel | None:
    """The configured model, None if no variable asks for one.

    OPENAI_API_KEY or OPENAI_BASE_URL choose Chat Completions, with OPENAI_MODEL; otherwise ANTHROPIC_API_KEY chooses
    Anthropic, with ANTHROPIC_MODEL and ANTHROPIC_BASE_URL. An empty variable counts as unset.

    Raises InvalidSettings for a server other than the provider's own without its model's name.
    """
    variables = os.environ if environ is None else environ
    if variables.get("OPENAI_API_KEY") or variables.get("OPENAI_BASE_URL"):
        return OpenAIChat(
            _model(variables, "OPENAI", DEFAULT_OPENAI_MODEL),
            api_key=variables.get("OPENAI_API_KEY") or None,
            base_url=variables.get("OPENAI_BASE_URL") or OPENAI_BASE_URL,
            http=http,
        )
    if variables.get("ANTHROPIC_API_KEY"):
        return AnthropicMessages(
            _model(variables, "ANTHROPIC", DEFAULT_ANTHROPIC_MODEL),
            api_key=variables["ANTHROPIC_API_KEY"],
            base_url=variables.get("ANTHROPIC_BASE_URL") or ANTHROPIC_BASE_URL,
            http=http,
        )
    return None


def _model(variables: Mapping[str, str], provider: str, default: str) -> str:
    model = variables.get(f"{provider}_MODEL")
    if not model and variables.get(f"{provider}_BASE_URL"):
        raise InvalidSettings(f"{provider}_BASE_URL names a server of your own: set {provider}_MODEL as well")
    return model or default
