"""What a run had come to after one of its turns, or in the midst of one: what another one can begin with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toolfleet.calls import Failed, FailureKind, Returned, Submitted, call_id
from toolfleet.messages import AssistantMessage, Message, Usage
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import CallRecord, CallsBack, ModelReplied, RunEvent, RunStarted
from toolfleet.orchestrator.run.requested import place_of
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.history import Entry, after

FIRST_TURN: Final = 1

MAY_HAVE_RUN: Final = frozenset(
    {
        FailureKind.IN_DOUBT,
        FailureKind.CRASHED,
        FailureKind.TIMED_OUT,
        FailureKind.EXPIRED,
        FailureKind.CANCELLED,
    }
)
"""Failures of calls whose effect may have happened all the same."""


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """A turn as another run begins with it: some of its calls are made again, of the others the results stand."""

    messages: tuple[Message, ...]
    """What the model had read before it asked for them."""
    state: dict[str, Any]
    """What the tools shared by then."""
    reply: ModelReplied
    again: tuple[CallRecord, ...]
    """The calls that are made again."""
    results: Mapping[int, Returned | Failed]
    """What the others had come to, by their places in the reply."""

    def events(self, run_id: str) -> tuple[RunEvent, ...]:
        """Return what a run with this id has behind its first event."""
        masked = tuple(call_id(run_id, FIRST_TURN, place_of(each)) for each in self.reply.masked)
        reply = self.reply.model_copy(update={"masked": masked})
        back = {call_id(run_id, FIRST_TURN, place): result for place, result in self.results.items()}
        return (reply, CallsBack(results=back)) if back else (reply,)


@dataclass(frozen=True, slots=True)
class CameTo:
    """What a run had come to after a turn: another one begins with it."""

    messages: tuple[Message, ...]
    """What its model would have been asked with next."""
    state: dict[str, Any]
    """What its tools shared by then."""
    results: tuple[Returned | Failed, ...]
    """What its calls had come to."""


def after_turn(entries: Sequence[Entry], turn: int) -> CameTo:
    """Return what a run had come to after this many replies of its model.

    Raises RunNotOpen where it has not come so far, or where a call of that turn has no answer.
    """
    run, _ = _before_reply(entries, turn + 1)
    if run.turn < turn:
        raise RunNotOpen(f"run {run.run_id} has had {run.turn} replies of its model, not {turn}")
    asked = run.messages[-1] if run.messages else None
    if isinstance(asked, AssistantMessage) and asked.tool_calls:
        raise RunNotOpen(f"not every call of turn {turn} of run {run.run_id} has an answer yet")
    known = [_known(call) for call in run.calls]
    return CameTo(run.messages, run.values, tuple(each for each in known if isinstance(each, Returned | Failed)))


def asked_again(run: Run, entries: Sequence[Entry], failed_id: str) -> AskedAgain:
    """Return the turn of a call that has failed, with which another run asks for that call again.

    So are calls of the turn that had succeeded and were taken back because of it. Raises RunNotFound for a call that
    the run has not asked for, RunNotOpen where it has not failed, or another of its turn has not ended.
    """
    failed = next((call for call in run.calls if call.call_id == failed_id), None)
    if failed is None:
        raise RunNotFound(f"run {run.run_id} has no call {failed_id}")
    if not isinstance(_known(failed), Failed):
        raise RunNotOpen(f"call {failed_id} has not failed: there is nothing to try again")
    before, reply = _before_reply(entries, failed.turn)
    if reply is None:
        raise RunNotOpen(f"the reply that asked for call {failed_id} was never whole: let its run go on, or fork it")
    asked = [call for call in run.calls if call.turn == failed.turn]
    again = tuple(call for call in asked if call is failed or _is_taken_back(call))
    if any(call.call_id in reply.masked for call in again):
        raise RunNotOpen(f"the arguments of call {failed_id} had secrets, which were forgotten with its end")
    kept = [call for call in asked if call not in again and not run.is_callers(call)]
    results = {place_of(call.call_id): _as_recorded(call) for call in kept}
    return AskedAgain(before.messages, before.values, _as_if_unasked(reply), again, results)


def _before_reply(entries: Sequence[Entry], turn: int) -> tuple[Run, ModelReplied | None]:
    """Return a run as it stood before a reply of its model, and that reply; all of it where there is none yet."""
    run = Run.start(cast("RunStarted", entries[0].event))
    for entry in entries[1:]:
        if isinstance(entry.event, ModelReplied) and run.turn + 1 == turn:
            return run, entry.event
        run = after(run, entry)
    return run, None


def _known(call: CallRecord) -> Returned | Failed | Submitted | None:
    return call.late_result or call.result


def _is_taken_back(call: CallRecord) -> bool:
    known = _known(call)
    return isinstance(known, Failed) and known.kind is FailureKind.ROLLED_BACK


def _as_recorded(call: CallRecord) -> Returned | Failed:
    """Return what a call has come to, for another run: no worker has done anything for that, and it cost nothing."""
    known = _known(call)
    if known is None or isinstance(known, Submitted):
        raise RunNotOpen(f"call {call.call_id}, of the same reply, has not ended yet")
    return known.model_copy(update={"attempt": None, "spent": None})


def _as_if_unasked(reply: ModelReplied) -> ModelReplied:
    """Return a reply for another run, which has not paid for it, and whose own limits judge the next ones."""
    unpaid = {"usage": Usage(), "restarts": 0, "over_limit": None, "wraps_up": False, "withheld": {}, "is_last": False}
    return reply.model_copy(update=unpaid)
