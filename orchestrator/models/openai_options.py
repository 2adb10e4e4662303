"""What a Chat Completions model is asked with besides the conversation, under the names that it takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.models.names import legal_name

LimitName = Literal["max_tokens", "max_completion_tokens"]
"""What the bound of a reply is called: `max_tokens` by most servers; newer models of OpenAI's refuse it."""

NEEDS_TOOLS: Final = ("tool_choice", "parallel_tool_calls")
"""What is refused where no tools are offered, and says nothing then."""

SEARCH: Final = "web_search"
SEARCH_OPTIONS: Final = frozenset({"type", "search_context_size", "user_location"})
"""What OpenAI's search takes in Chat Completions."""

_OPENAIS_HOSTS: Final = re.compile(r"(.+\.)?(openai\.com|openai\.azure\.com)")
_THINKS: Final = re.compile(r"(.*/)?(o\d|gpt-([5-9]|\d\d))")
"""OpenAI's models that refuse `max_tokens`, on whatever server in front of them."""


def _is_openais(host: str) -> bool:
    return _OPENAIS_HOSTS.fullmatch(host.partition(":")[0]) is not None


def offered_by(
    host: str, tools: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any] | None]:
    """Return which provider's tools are entries of `tools`, and the options of OpenAI's search, where it is asked for.

    OpenAI's own Chat Completions takes functions only; of its tools it has the search, as `web_search_options`:
    https://platform.openai.com/docs/guides/tools-web-search. Raises InvalidSettings for the others, which stand in its
    Responses API.
    """
    if not _is_openais(host):
        return tools, None
    for tool in tools:
        if tool["type"] != SEARCH or (strange := sorted(set(tool) - SEARCH_OPTIONS)):
            what = f"{tool['type']!r}" if tool["type"] != SEARCH else f"{SEARCH!r} with {', '.join(strange)}"
            raise InvalidSettings(
                f"provider_tools: OpenAI's Chat Completions has no {what}: it takes {SEARCH!r} with "
                "search_context_size and user_location"
            )
    return (), next(({name: value for name, value in tool.items() if name != "type"} for tool in tools), None)


def limit_name(host: str, model: str) -> LimitName:
    """Return what a model of this host calls the bound of its reply."""
    is_openais = _is_openais(host) or _THINKS.match(model)
    return "max_completion_tokens" if is_openais else "max_tokens"


def openai_options(asked: Mapping[str, Any], *, limit: LimitName, has_tools: bool) -> dict[str, Any]:
    """Return the options as the request takes them; those that it has no word for go as they are."""
    options = {name: value for name, value in asked.items() if has_tools or name not in NEEDS_TOOLS}
    for name in ("max_tokens", "max_completion_tokens"):
        if name in options:
            options[limit] = options.pop(name)
    match options.get("tool_choice"):
        case {"type": "function", "function": {"name": str(name)}}:
            options["tool_choice"] = {"type": "function", "function": {"name": legal_name(name)}}
    return options


def objection_to_options(asked: Mapping[str, Any]) -> str | None:
    """Return why no Chat Completions model must be asked with these; None if nothing is known against them."""
    if asked.get("max_tokens") is not None and asked.get("max_completion_tokens") is not None:
        return "max_tokens and max_completion_tokens are two names of one bound: give one of them"
    return None
