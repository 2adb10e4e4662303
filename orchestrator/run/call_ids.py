"""The ids of calls as the history has them: each its own, since answers are paired by id. Pure."""

from __future__ import annotations

from collections.abc import Collection

from toolfleet.messages import AssistantMessage


def with_distinct_ids(message: AssistantMessage, taken: Collection[str] = ()) -> AssistantMessage:
    """The reply with an id of its own for each call: some models double ids, omit them, or use them again.

    `taken` are those of the conversation before it. The id of a call depends on those before it alone, so that the
    beginning of a reply has the same ids as the whole.
    """
    seen = set(taken)
    calls = []
    for position, call in enumerate(message.tool_calls):
        own_id = _free(call.id, position, seen)
        seen.add(own_id)
        calls.append(call if own_id == call.id else call.model_copy(update={"id": own_id}))
    return message.model_copy(update={"tool_calls": tuple(calls)})


def _free(given: str, position: int, seen: Collection[str]) -> str:
    """The id that was given if it is free, or else the first that is made of it and free."""
    if given and given not in seen:
        return given
    candidate = f"{given or 'call'}-{position}"
    further = 1
    while candidate in seen:
        further += 1
        candidate = f"{given or 'call'}-{position}-{further}"
    return candidate
