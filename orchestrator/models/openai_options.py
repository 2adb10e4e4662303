"""What a Chat Completions model is asked with besides the conversation, under the names that it takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from toolfleet.orchestrator.models.names import legal_name

LimitName = Literal["max_tokens", "max_completion_tokens"]
"""What the bound of a reply is called: `max_tokens` by most servers; newer models of OpenAI's refuse it."""

NEEDS_TOOLS: Final = ("tool_choice", "parallel_tool_calls")
"""What is refused where no tools are offered, and says nothing then."""

_OPENAIS_HOSTS: Final = re.compile(r"(.+\.)?(openai\.com|openai\.azure\.com)")
_THINKS: Final = re.compile(r"(.*/)?(o\d|gpt-([5-9]|\d\d))")
"""OpenAI's models that refuse `max_tokens`, on whatever server in front of them."""


def limit_name(host: str, model: str) -> LimitName:
    """Return what a model of this host calls the bound of its reply."""
    is_openais = _OPENAIS_HOSTS.fullmatch(host.partition(":")[0]) or _THINKS.match(model)
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
