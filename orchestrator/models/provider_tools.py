"""Tools that a model's provider runs itself, offered beside the fleet's: what is asked for, under which names. Pure.

Nobody here runs them. What they do stands in the reply, as parts of the provider's own (`anthropic_blocks`,
`openai_reply`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from toolfleet.errors import InvalidSettings
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.orchestrator.models.protocol import OfferedTool

PARTS: Final = "provider_parts"
"""Under which a message's extras keep what the provider's tools have done in it."""

RUN_BY_CALLERS: Final = re.compile(r"(function|custom|builtin_function|(bash|text_editor|computer|memory)_\d.*)?")
"""Types of tools of both protocols that a provider declares, and its caller has to run."""

REQUESTS: Final = "_requests"
"""How providers' counts end that are of one tool: `web_search_requests`."""


def checked(tools: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the tools as they go into each request. Raises InvalidSettings for what is no tool of a provider's."""
    taken: set[str] = set()
    whole = tuple(_checked(tool) for tool in tools)
    for name in map(name_of, whole):
        if name in taken:
            raise InvalidSettings(f"provider_tools has {name!r} twice: leave one of them out")
        taken.add(name)
    return whole


def _checked(tool: object) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or not isinstance(kind := tool.get("type"), str):
        raise InvalidSettings(
            f"provider_tools: {tool!r:.80} is no tool: give a mapping with a type, as its provider has it"
        )
    if RUN_BY_CALLERS.fullmatch(kind):
        raise InvalidSettings(f"provider_tools: the type {kind!r} is run by its caller: give the fleet such a tool")
    try:
        return dict(orjson.loads(orjson.dumps(dict(tool))))  # a copy that nobody changes, and that has a JSON form
    except TypeError as error:
        raise InvalidSettings(f"provider_tools: {kind} has no JSON form: {error}") from error


def name_of(tool: Mapping[str, Any]) -> str:
    """By which name a model uses a tool: its own, or its type where it has none."""
    name = tool.get("name")
    return name if isinstance(name, str) and name else str(tool["type"])


def clash(names: Collection[str], tools: Iterable[OfferedTool]) -> str | None:
    """Return why these tools must not be offered together with the provider's; None where their names differ."""
    if not names:
        return None
    for tool in tools:
        if legal_name(tool.name) in names:
            return (
                f"the fleet's tool {tool.name} has the name of a tool that the model's provider runs itself "
                "(provider_tools): rename one, or leave one out"
            )
    return None


def counts(said: object) -> dict[str, int]:
    """Return how often a provider says that its tools were used, by their names."""
    if not isinstance(said, dict):
        return {}
    return {
        name.removesuffix(REQUESTS): number
        for name, number in said.items()
        if isinstance(name, str) and name.endswith(REQUESTS) and type(number) is int and number >= 0
    }


def left_behind(messages: Sequence[Message], provider: str) -> list[str]:
    """Return the providers whose parts a request does not take along, where it is the first one after their reply."""
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return [
                host
                for host, kept in message.extras.items()
                if host != provider and isinstance(kept, dict) and PARTS in kept
            ]
    return []
