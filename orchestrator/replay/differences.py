"""Where a replay has come to something else than what was written down: which turn, what of it, expected and found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from toolfleet.calls import Record
from toolfleet.messages import Message
from toolfleet.orchestrator.run.events import (
    CallsBack,
    CallsParked,
    CallsSent,
    ModelReplied,
    RunEvent,
    RunStopped,
    SlowResultDelivered,
)

NOTHING: Final = "nothing"

_REPLY: Final = ("offered", "problem", "incomplete", "masked", "over_limit", "wraps_up", "withheld", "is_last")
"""What the orchestrator has decided of a reply; the rest is its model's."""


class Difference(Record):
    """One thing that came out differently."""

    turn: int
    """The reply of the model that it belongs to; 0 before the first one."""
    event: int
    """The place in the history of what was expected, 0 for what the run had come to at its end."""
    what: str
    """For example `calls_sent: awaiting_approval`, or `message 4 (tool): content`."""
    expected: Any
    found: Any


def of_events(expected: RunEvent, found: RunEvent, before: Sequence[Message]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two events of one type; `before`: the conversation that they follow."""
    match expected, found:
        case ModelReplied(), ModelReplied():
            for name in _REPLY:
                yield from _unless_equal(f"{expected.type}: {name}", getattr(expected, name), getattr(found, name))
            yield from of_messages([expected.message], [found.message], len(before))
        case CallsSent(), CallsSent():
            for name, said, came in zip(_SENT, _sent(expected), _sent(found), strict=True):
                yield from _unless_equal(f"{expected.type}: {name}", said, came)
        case CallsParked(), CallsParked():
            yield from _unless_equal(f"{expected.type}: calls", sorted(expected.handles), sorted(found.handles))
        case (CallsBack() | SlowResultDelivered(), CallsBack() | SlowResultDelivered()):
            yield from _of_results(expected.type, expected.results, found.results)
            yield from of_messages(expected.messages, found.messages, len(before))
        case RunStopped(), RunStopped():
            yield from _unless_equal("run_stopped: reason", expected.reason, found.reason)
            yield from of_messages(expected.messages, found.messages, len(before))
        case _:
            return


_SENT: Final = ("sent", "direct", "agents", "background", "awaiting_approval")


def _sent(event: CallsSent) -> list[list[str]]:
    named = (event.deadlines_unix_s, event.direct, event.agents, event.background, event.awaiting_approval)
    return [sorted(calls) for calls in named]


def _of_results(kind: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for call_id in sorted({*expected, *found}):
        said, came = expected.get(call_id), found.get(call_id)
        if said != came:
            yield f"{kind}: result of call {call_id}", _shown(said), _shown(came)


def of_messages(
    expected: Sequence[Message], found: Sequence[Message], first: int = 0
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two conversations, message by message; `first` is the place of their first ones."""
    for place, (said, came) in enumerate(zip_longest(expected, found), first):
        if said == came:
            continue
        if said is None or came is None or type(said) is not type(came):
            there = said or came
            assert there is not None  # noqa: S101  # one of them is
            yield f"message {place} ({there.role})", _shown(said), _shown(came)
            continue
        for name in type(said).model_fields:
            if getattr(said, name) != getattr(came, name):
                yield f"message {place} ({said.role}): {name}", _value(said, name), _value(came, name)


def _unless_equal(what: str, expected: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    if expected != found:
        yield what, _plain(expected), _plain(found)


def _value(record: Record, name: str) -> Any:
    return record.model_dump(mode="json", include={name}).get(name)


def _shown(record: Record | None) -> Any:
    return NOTHING if record is None else record.model_dump(mode="json")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
