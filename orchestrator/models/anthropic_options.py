"""What a Messages model is asked with besides the conversation: OpenAI's words in Anthropic's. Pure.

Anthropic's own words stay as they are, so that a caller may write either. What OpenAI alone has a word for is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolfleet.orchestrator.models.names import legal_name

UNKNOWN: Final = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "seed",
        "store",
        "verbosity",
    }
)
"""Fields of Chat Completions that Messages has no word for."""

TIERS: Final = {"default": "standard_only"}
TAKEN_TIERS: Final = frozenset({"auto", "standard_only", *TIERS})

_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_TRANSLATED: Final = frozenset(
    {*_LIMITS, "stop", "user", "safety_identifier", "service_tier", "tool_choice", "parallel_tool_calls"}
)
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


def objection_to_options(asked: Mapping[str, Any]) -> str | None:
    """Return why no Messages model must be asked with these; None if nothing is known against them."""
    given = {name: value for name, value in asked.items() if value is not None}
    if unknown := sorted(UNKNOWN.intersection(given)):
        return f"an Anthropic model takes no {', '.join(unknown)}: leave it out"
    if given.keys() >= set(_LIMITS):
        return "max_tokens and max_completion_tokens are two names of one bound: give one of them"
    if (tier := given.get("service_tier")) is not None and tier not in TAKEN_TIERS:
        return f"an Anthropic model takes the service_tier auto or default, not {tier!r}"
    if strange := set(given.get("metadata") or ()) - {"user_id"}:
        return f"an Anthropic model takes no metadata but user_id: leave out {', '.join(sorted(strange))}"
    match given.get("response_format"):
        case {"type": "json_object"}:
            return "an Anthropic model takes no response_format json_object: give a json_schema"
    return _objection_to_choice(given.get("tool_choice"))


def _objection_to_choice(choice: Any) -> str | None:
    if choice is None or _choice(choice) is not None:
        return None
    return f"an Anthropic model takes no tool_choice {str(choice)[:80]}: give auto, required, none or a function"


def anthropic_options(asked: Mapping[str, Any], *, has_tools: bool) -> dict[str, Any]:
    """Return the options as the request takes them. A `response_format` is held to by whoever asks."""
    options = {name: value for name, value in asked.items() if name not in {*_TRANSLATED, "response_format"}}
    for name in _LIMITS:
        if asked.get(name) is not None:
            options["max_tokens"] = asked[name]
    if (stop := asked.get("stop")) is not None:
        options["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if user := asked.get("safety_identifier") or asked.get("user"):
        options["metadata"] = {"user_id": user, **(options.get("metadata") or {})}
    if (tier := asked.get("service_tier")) is not None:
        options["service_tier"] = TIERS.get(tier, tier)
    if has_tools and (choice := _tool_choice(asked)) is not None:
        options["tool_choice"] = choice
    return options


def _tool_choice(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    choice = _choice(asked.get("tool_choice"))
    if asked.get("parallel_tool_calls") is not False:
        return choice
    return {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}


def _choice(asked: Any) -> dict[str, Any] | None:
    """Return a choice of tools as Messages writes it; None for one that it has no word for."""
    match asked:
        case str(word) if word in _CHOICES:
            return {"type": _CHOICES[word]}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": legal_name(name)}
        case {"type": "auto" | "any" | "none" | "tool"}:
            return dict(asked)
        case _:
            return None
