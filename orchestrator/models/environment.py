"""The model that a name and the environment's variables describe.

Reads variables; asks nobody whether the key works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.models.rehearsal import REHEARSAL_MODEL

if TYPE_CHECKING:  # it loads an HTTP client
    from toolfleet.orchestrator.models.http import HttpOptions

MODEL_VARIABLE: Final = "TOOLFLEET_MODEL"
"""The name that holds for every command which is given none."""

SEES_VARIABLE: Final = "TOOLFLEET_MODEL_SEES"
"""Whether the model takes images, where its name does not tell."""

TOOLS_VARIABLE: Final = "TOOLFLEET_PROVIDER_TOOLS"
"""Tools that the model's provider runs itself, as a JSON list."""

DEFAULT_OPENAI_MODEL = "gpt-5.2"
DEFAULT_ANTHROPIC_MODEL = "claude-sonnet-4-5"

OPENAI: Final = "openai"
ANTHROPIC: Final = "anthropic"
REHEARSAL: Final = "rehearsal"

OPENAIS_OWN: Final = re.compile(r"(gpt-|chatgpt-|o\d|ft:)")
"""How the names of OpenAI's own models begin."""

ANTHROPICS_OWN: Final = "claude"


def model_from_environment(
    environ: Mapping[str, str] | None = None, *, named: str | None = None, http: HttpOptions | None = None
) -> ChatModel | None:
    """The model of this name, or of TOOLFLEET_MODEL, or else the one that the variables choose; None is the rehearsal.

    A name is a model's own (`gpt-5.2`, `claude-…`, any if OPENAI_BASE_URL is set), `provider:name`, or `rehearsal`.
    Without one OPENAI_API_KEY or OPENAI_BASE_URL choose Chat Completions, with OPENAI_MODEL; otherwise
    ANTHROPIC_API_KEY chooses Anthropic, with ANTHROPIC_MODEL and ANTHROPIC_BASE_URL. TOOLFLEET_MODEL_SEES says whether
    it takes images, TOOLFLEET_PROVIDER_TOOLS which tools its provider is to run. An empty variable counts as unset.

    Raises InvalidSettings for a name that is nobody's, a key that is missing, and for a server other than the
    provider's own without its model's name.
    """
    variables = os.environ if environ is None else environ
    name = variables.get(MODEL_VARIABLE, "") if named is None else named
    provider, model = _chosen(name.strip(), variables) if named is not None or name else (_provider(variables), "")
    match provider:
        case "openai":
            from toolfleet.orchestrator.models.openai import OPENAI_BASE_URL, OpenAIChat  # noqa: PLC0415  # as above

            return OpenAIChat(
                model or _model(variables, "OPENAI", DEFAULT_OPENAI_MODEL),
                api_key=variables.get("OPENAI_API_KEY") or None,
                base_url=variables.get("OPENAI_BASE_URL") or OPENAI_BASE_URL,
                sees=_sees(variables),
                provider_tools=_provider_tools(variables),
                http=http,
            )
        case "anthropic":
            from toolfleet.orchestrator.models.anthropic import (  # noqa: PLC0415  # as above
                ANTHROPIC_BASE_URL,
                AnthropicMessages,
            )

            return AnthropicMessages(
                model or _model(variables, "ANTHROPIC", DEFAULT_ANTHROPIC_MODEL),
                api_key=variables["ANTHROPIC_API_KEY"],
                base_url=variables.get("ANTHROPIC_BASE_URL") or ANTHROPIC_BASE_URL,
                sees=_sees(variables) is not False,
                provider_tools=_provider_tools(variables),
                http=http,
            )
        case _:
            return None


def _sees(variables: Mapping[str, str]) -> bool | None:
    """Return whether the model is said to take images; None if nothing is said. Raises InvalidSettings."""
    match variables.get(SEES_VARIABLE, "").strip().lower():
        case "":
            return None
        case "1" | "true" | "yes":
            return True
        case "0" | "false" | "no":
            return False
        case other:
            raise InvalidSettings(f"{SEES_VARIABLE} is 1 or 0, not {other!r}")


def _provider_tools(variables: Mapping[str, str]) -> list[Any]:
    """Return the tools that the model's provider is to run. Raises InvalidSettings for what is no JSON list."""
    try:
        tools = orjson.loads(variables.get(TOOLS_VARIABLE, "").strip() or "[]")
    except ValueError:
        tools = None
    if not isinstance(tools, list):
        raise InvalidSettings(f"{TOOLS_VARIABLE} is no JSON list of tools")
    return tools


def _provider(variables: Mapping[str, str]) -> str:
    """Return the provider that is asked when nobody named a model."""
    if _reaches_openai(variables):
        return OPENAI
    return ANTHROPIC if variables.get("ANTHROPIC_API_KEY") else REHEARSAL


def _chosen(name: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """Return the provider and the model that a name means. Raises InvalidSettings."""
    provider, colon, rest = name.partition(":")
    if name in {REHEARSAL, REHEARSAL_MODEL}:
        return REHEARSAL, ""
    if not (colon and provider in {OPENAI, ANTHROPIC}):
        provider, rest = _owner(name, variables), name
    if not rest or any(character.isspace() for character in rest):
        raise InvalidSettings(f"{name!r} names no model: write for example --model gpt-5.2, or --model rehearsal")
    if provider == OPENAI and not _reaches_openai(variables):
        raise InvalidSettings(f"the model {rest} needs OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own")
    if provider == ANTHROPIC and not variables.get("ANTHROPIC_API_KEY"):
        raise InvalidSettings(f"the model {rest} needs ANTHROPIC_API_KEY")
    return provider, rest


def _owner(name: str, variables: Mapping[str, str]) -> str:
    """Whose model has this name, which names no provider."""
    has_own_server = bool(variables.get("OPENAI_BASE_URL"))
    if name.startswith(ANTHROPICS_OWN):
        # A proxy in front of many providers offers it, too.
        return OPENAI if has_own_server and not variables.get("ANTHROPIC_API_KEY") else ANTHROPIC
    if has_own_server or OPENAIS_OWN.match(name) or not name:
        return OPENAI
    raise InvalidSettings(
        f"nobody can tell whose model {name!r} is: write openai:{name} or anthropic:{name}, "
        "or set OPENAI_BASE_URL to the server that has it"
    )


def _reaches_openai(variables: Mapping[str, str]) -> bool:
    return bool(variables.get("OPENAI_API_KEY") or variables.get("OPENAI_BASE_URL"))


def _model(variables: Mapping[str, str], provider: str, default: str) -> str:
    model = variables.get(f"{provider}_MODEL")
    if not model and variables.get(f"{provider}_BASE_URL"):
        raise InvalidSettings(
            f"{provider}_BASE_URL names a server of your own: set {provider}_MODEL or --model as well"
        )
    return model or default
