"""What has become of the calls of one reply, and what that means for their run. Pure: the loop only acts on it.

Each call of a group ends in one of three ways: with a result, as slow (its patience is used up and it goes on by
itself), or waiting for a person. What has a result is written down as `CallsBack`; when only the others are left, the
run rests with `CallsParked`, unless its model is given handles for them and goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolfleet.calls import Submitted, ToolResult
from toolfleet.orchestrator.run.events import CallRecord, CallsBack, CallsParked, CallsSent
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.trusted import trusted

_calls_sent, _calls_back = trusted(CallsSent), trusted(CallsBack)


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """How the calls of a group ended, by call id."""

    results: Mapping[str, ToolResult]
    fetched: Mapping[str, ToolResult]
    """Late results of earlier calls that the model asked for in this group."""
    slow: frozenset[str]
    """The calls that go on by themselves."""
    raised: Exception | None = None
    """What a handler or an interceptor raised at one of the calls: to be raised once the rest is written down."""
    sent: CallsSent | None = None
    """That they were sent, where it is still to be written down, with their results."""

    def joined(self, more: GroupOutcome) -> GroupOutcome:
        """This and what has become of the next calls of the same reply."""
        if self is NOTHING_YET:
            return more
        return GroupOutcome(
            {**self.results, **more.results},
            {**self.fetched, **more.fetched},
            self.slow | more.slow,
            self.raised or more.raised,  # `sent`: of each portion that is written down before the next is sent
        )


NOTHING_YET: Final = GroupOutcome({}, {}, frozenset())
"""Of a group that was not waited for."""


def portions(calls: Sequence[CallRecord], at_a_time: int | None) -> list[Sequence[CallRecord]]:
    """The calls as they are to be made, so many together: those first that were sent before, the others in order."""
    if at_a_time is None or len(calls) <= at_a_time:
        return [calls]
    ordered = sorted(calls, key=lambda call: call.deadline_unix_s is None)
    return [ordered[at : at + at_a_time] for at in range(0, len(ordered), at_a_time)]


def what_was_sent(
    run: Run,
    deadlines_unix_s: Mapping[str, float],
    direct: Collection[str],
    awaiting_approval: Iterable[str],
    *,
    agents: Collection[str] = (),
    background: Iterable[str] = (),
) -> CallsSent | None:
    """What must be written down of a group that was sent just now; None when nothing of it is new."""
    undecided = tuple(awaiting_approval)
    if undecided:
        asked_before = {call.call_id for call in run.calls_owed if call.awaits_approval}
        undecided = tuple(call_id for call_id in undecided if call_id not in asked_before)
    if not deadlines_unix_s and not undecided:
        return None
    return _calls_sent(
        deadlines_unix_s=dict(deadlines_unix_s),
        direct=tuple(direct),
        agents=tuple(agents),
        background=tuple(background),
        awaiting_approval=undecided,
    )


def what_came_back(run: Run, outcome: GroupOutcome, handed_out: Mapping[str, Submitted]) -> CallsBack | None:
    """What must be written down of a group that was waited for; None when nothing of it is back."""
    results = {**outcome.results, **given_to_model(run, handed_out)}
    if not results and not outcome.fetched:
        return None
    return _calls_back(
        results=results, messages=run.messages_with(results), fetched=dict(outcome.fetched), sent=outcome.sent
    )


def given_to_model(run: Run, handed_out: Mapping[str, Submitted]) -> dict[str, Submitted]:
    """The handles that its model is given as results: those it has asked for, or all where it goes on with handles.

    For the other calls the run waits.
    """
    if not handed_out:
        return {}
    if run.terms.slow == "handle":
        return dict(handed_out)
    return {call.call_id: handed_out[call.call_id] for call in run.in_background if call.call_id in handed_out}


def how_it_rests(run: Run, handed_out: Mapping[str, Submitted]) -> CallsParked | None:
    """What must be written down before the run rests; None while it has something to do."""
    # A decision may have come with the results: its call is to be sent, or refused, before the run rests.
    if run.state is not State.CALLING or run.only_callers_calls_left or run.calls_to_send:
        return None
    owed = {call.call_id for call in run.calls_owed}
    return CallsParked(handles={call_id: each.handle for call_id, each in handed_out.items() if call_id in owed})


def masked_and_back(calls: Iterable[CallRecord], results: Collection[str]) -> list[str]:
    """What the secrets are kept as that nobody needs any more: the model's own, and those of a person's edit."""
    back = [call for call in calls if call.call_id in results]
    edited_or_not = [{call.call_id, call.kept_as} for call in back if call.is_masked or call.approval]
    return [kept_as for either in edited_or_not for kept_as in either if kept_as]
