"""A run as a timeline: its turns and calls, each with the stretches that it waited and worked. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolfleet.orchestrator.doors.page.time_axis import WIDTH, Axis
from toolfleet.orchestrator.doors.page.wording import span
from toolfleet.orchestrator.run.events import (
    ApprovalGiven,
    CallsBack,
    CallsParked,
    CallsStreamed,
    ModelReplied,
    QuestionAnswered,
    RunResumed,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
    sending_in,
)
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.store.history import Entry

MIN_BAR: Final = 4.0
"""The shortest bar: one that cannot be seen cannot be reached."""

BUSY: Final = frozenset({"queued", "running", "thinking"})
"""The kinds of stretches in which something happens: the others are waits, of which long ones are folded."""


class Stretch(NamedTuple):
    """From when to when something was so: thinking, queued, running, elsewhere (a job), or person (an approval)."""

    kind: str
    since_s: float
    to_s: float


class Bar(NamedTuple):
    """A stretch as it is drawn."""

    kind: str
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a turn of the model, or a call."""

    turn: int
    call: CallStanding | None
    stretches: tuple[Stretch, ...]
    bars: tuple[Bar, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from all other rows of its run."""
        return self.call.call_id if self.call else f"turn-{self.turn}"


@dataclass(slots=True)
class _Moments:
    """When what happened, by the server's clock."""

    ends_s: float = 0.0
    thinking: dict[int, tuple[float, float]] = field(default_factory=dict)
    thinks_since_s: float | None = None
    asked_s: dict[int, float] = field(default_factory=dict)
    sent_s: dict[str, float] = field(default_factory=dict)
    person_since_s: dict[str, float] = field(default_factory=dict)
    person_to_s: dict[str, float] = field(default_factory=dict)
    parked_s: dict[str, float] = field(default_factory=dict)
    asked: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """From when to when each call's tool has waited for a person's answer."""
    turn: int = 0


def _moments(entries: Sequence[Entry]) -> _Moments:
    found = _Moments()
    for entry in entries:
        found.ends_s = at_s = entry.at_unix_s
        if (sent := sending_in(entry.event)) is not None:
            found.sent_s.update(dict.fromkeys(sent.deadlines_unix_s, at_s - sent.held_s))
            found.person_since_s.update(dict.fromkeys(sent.awaiting_approval, at_s))
        match entry.event:
            case RunStarted() | RunResumed() | SlowResultDelivered():
                found.thinks_since_s = found.thinks_since_s or at_s
            case ModelReplied():
                found.turn += 1
                found.thinking[found.turn] = found.thinks_since_s or at_s, at_s
                found.asked_s[found.turn] = at_s
                found.thinks_since_s = None
            case CallsStreamed():
                found.asked_s.setdefault(found.turn + 1, at_s)
            case ApprovalGiven(call_id=call_id):
                found.person_to_s[call_id] = at_s
            case CallsParked(handles=handles):
                found.parked_s.update(dict.fromkeys(handles, at_s))
            case CallsBack(messages=messages) if messages:
                found.thinks_since_s = at_s
            case RunStopped():
                found.thinks_since_s = None
    return found


def rows_of(
    entries: Sequence[Entry],
    calls: Iterable[CallStanding],
    *,
    now_s: float,
    is_thinking: bool,
    asked_s: Iterable[tuple[str, float]] = (),
) -> tuple[Row, ...]:
    """Return the rows of a run, turn by turn; what goes on now reaches to `now_s`.

    `asked_s` says since when which calls wait for a person's answer.
    """
    moments = _moments(entries)
    for entry in entries:
        if isinstance(said := entry.event, QuestionAnswered) and said.answered.asked_unix_s:
            moments.asked[said.call_id].append((said.answered.asked_unix_s, entry.at_unix_s))
    for call_id, since_s in asked_s:
        moments.asked[call_id].append((since_s, now_s))
    by_turn: dict[int, list[CallStanding]] = {}
    for call in calls:
        by_turn.setdefault(call.turn, []).append(call)
    thinking = dict(moments.thinking)
    if is_thinking and moments.thinks_since_s is not None:
        thinking[moments.turn + 1] = moments.thinks_since_s, now_s
    rows: list[Row] = []
    for turn in sorted({*thinking, *by_turn}):
        stretches = (Stretch("thinking", *thinking[turn]),) if turn in thinking else ()
        rows.append(Row(turn, None, stretches))
        rows += (Row(turn, call, tuple(_stretches(call, moments, now_s))) for call in by_turn.get(turn, ()))
    return tuple(rows)


def _stretches(call: CallStanding, moments: _Moments, now_s: float) -> Iterable[Stretch]:
    """Yield what a call has waited and worked, in order."""
    ends_s = call.ended_unix_s if call.is_over else now_s
    ends_s = moments.ends_s if ends_s is None else ends_s
    person_s = moments.person_since_s.get(call.call_id)
    if person_s is not None:
        yield Stretch("person", person_s, moments.person_to_s.get(call.call_id, ends_s))
    sent_s = moments.sent_s.get(call.call_id, call.began_unix_s)
    if sent_s is None:
        return
    if asked := moments.asked.get(call.call_id):
        yield from _between_questions(asked, sent_s, ends_s)
        return
    parked_s = moments.parked_s.get(call.call_id) if call.job is not None or _was_elsewhere(call) else None
    # A call is on its way a moment before that is noted: a quick one is back by then.
    sent_s = min(sent_s, ends_s, call.began_unix_s or sent_s)
    began_s = min(max(_began_s(call, sent_s, now_s, ends_s), sent_s), ends_s)
    if began_s > sent_s:
        yield Stretch("queued", sent_s, min(began_s, ends_s))
    if parked_s is not None and parked_s < ends_s:
        yield Stretch("running", began_s, max(began_s, parked_s))
        yield Stretch("elsewhere", max(began_s, parked_s), ends_s)
    elif ends_s >= began_s and call.state is not CallState.QUEUED:
        yield Stretch("running", began_s, ends_s)


def _between_questions(asked: Iterable[tuple[float, float]], sent_s: float, ends_s: float) -> Iterable[Stretch]:
    """Yield the stretches of a call whose tool has asked a person; when its first attempt began, nobody knows then."""
    reached_s = sent_s
    for asked_s, answered_s in sorted(asked):
        since_s, to_s = min(max(asked_s, reached_s), ends_s), min(answered_s, ends_s)
        if since_s > reached_s:
            yield Stretch("running", reached_s, since_s)
        if to_s > since_s:
            yield Stretch("person", since_s, to_s)
        reached_s = max(reached_s, to_s)
    if ends_s > reached_s:
        yield Stretch("running", reached_s, ends_s)


def _began_s(call: CallStanding, sent_s: float, now_s: float, ends_s: float) -> float:
    """Return when a worker began with a call, or when it was sent where nobody knows more."""
    if call.began_unix_s is not None:
        return call.began_unix_s
    if call.held_by is not None:
        return now_s - call.held_by.since_s
    has_begun = call.state in {CallState.RUNNING, CallState.SUBMITTED} or call.is_over
    return sent_s if has_begun else ends_s


def _was_elsewhere(call: CallStanding) -> bool:
    return call.state is CallState.SUBMITTED


def axis_of(rows: Sequence[Row], start_s: float, end_s: float) -> Axis:
    """Return the axis that all rows of a run share."""
    busy = ((stretch.since_s, stretch.to_s) for row in rows for stretch in row.stretches if stretch.kind in BUSY)
    return Axis.over(start_s, end_s, busy)


def drawn(row: Row, axis: Axis, words: Mapping[str, str]) -> Row:
    """Return the row with its bars."""
    return Row(row.turn, row.call, row.stretches, tuple(_bar(each, axis, words) for each in row.stretches))


def _bar(stretch: Stretch, axis: Axis, words: Mapping[str, str]) -> Bar:
    left, right = axis.x(stretch.since_s), axis.x(stretch.to_s)
    width = max(MIN_BAR, right - left)
    title = f"{words[stretch.kind]} {span(stretch.to_s - stretch.since_s)}"
    return Bar(stretch.kind, round(min(left, WIDTH - width), 1), round(width, 1), title)


WORDS: Final = {
    "thinking": "the model thought for",
    "queued": "queued for",
    "running": "ran for",
    "elsewhere": "a job elsewhere for",
    "person": "waited for a person for",
}
