"""The calls of a run in pages: which are wanted, which failed first and which took longest. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Self

from toolfleet.calls import Failed, FailureKind, Progress, Record
from toolfleet.orchestrator.errors import BadCursor
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.status.call_reader import recorded_result
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.holding import HeldBy, WaitsFor

ERROR_CHARS: Final = 300


class CallRow(Record):
    """A call as lists show it: without its arguments and its result."""

    call_id: str
    turn: int
    tool: str
    state: CallState
    age_s: float | None
    attempt: int | None
    worker: str
    began_unix_s: float | None
    ended_unix_s: float | None
    took_s: float | None
    handle: str
    progress: Progress | None
    waits_for: WaitsFor | None
    held_by: HeldBy | None
    kind: FailureKind | None = None
    """How it failed."""
    error: str = ""
    """The beginning of what it failed with."""

    @classmethod
    def of(cls, call: CallStanding) -> Self:
        """Make it of how a call stands."""
        own = {name: getattr(call, name) for name in cls.model_fields if name in CallStanding.model_fields}
        failed = call.result if isinstance(call.result, Failed) else None
        return cls(**own, kind=failed and failed.kind, error=failed.message[:ERROR_CHARS] if failed else "")


class Slowest(Record):
    """The call of a run that has taken longest, of those that have ended."""

    call_id: str
    took_s: float


class CallPage(Record):
    """Some calls of a run, in the order of asking."""

    calls: tuple[CallRow, ...]
    after: str | None
    """What the next page is asked for with; None behind the last call."""
    total: int
    """How many calls the run has made, wanted or not."""
    failed: int
    """How many of those have failed."""
    first_failure: str | None
    """The first of those, by its id."""
    slowest: Slowest | None

    @classmethod
    def of(cls, calls: Sequence[CallRecord], found: Sequence[CallStanding], limit: int) -> Self:
        """Make it of all calls of a run, and of those found on the page and one more if there is one."""
        failed = [call.call_id for call in calls if isinstance(recorded_result(call), Failed)]
        return cls(
            calls=tuple(CallRow.of(each) for each in found[:limit]),
            after=found[limit - 1].call_id if len(found) > limit else None,
            total=len(calls),
            failed=len(failed),
            first_failure=failed[0] if failed else None,
            slowest=_slowest(calls),
        )


@dataclass(frozen=True, slots=True)
class CallsWanted:
    """Which calls of a run are asked for."""

    limit: int
    after: str = ""
    tools: Collection[str] = ()
    states: Collection[CallState] = ()
    error: str = ""
    """A part of what they failed with, in capitals or not."""

    def candidates(self, calls: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """Return those that may be wanted, by what is recorded of them. Raises BadCursor."""
        begins = 0
        if self.after:
            places = [place for place, call in enumerate(calls, 1) if call.call_id == self.after]
            if not places:
                raise BadCursor("the run has no such call to go on behind: begin without one")
            begins = places[0]
        return [call for call in calls[begins:] if self._may_be(call)]

    def _may_be(self, call: CallRecord) -> bool:
        if self.tools and call.tool not in self.tools:
            return False
        known = recorded_result(call)
        return not self.error or known is None or (isinstance(known, Failed) and self._is_in(known.message))

    def includes(self, call: CallStanding) -> bool:
        """Return whether a call is wanted, as it stands."""
        failed = isinstance(call.result, Failed) and self._is_in(call.result.message)
        return (not self.states or call.state in self.states) and (not self.error or failed)

    def _is_in(self, message: str) -> bool:
        return self.error.casefold() in message.casefold()


def _slowest(calls: Sequence[CallRecord]) -> Slowest | None:
    took = [
        (call.ended_unix_s - call.began_unix_s, call.call_id)
        for call in calls
        if call.ended_unix_s is not None and call.began_unix_s is not None
    ]
    if not took:
        return None
    longest_s, call_id = max(took)
    return Slowest(call_id=call_id, took_s=round(max(0.0, longest_s), 4))
