"""Tells the runs above a run what of it waits for a person, and what was decided: whoever follows them sees it there.

Written into their histories once for each call, so that it is told by their streams on every server, after any crash.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolfleet.calls import run_of
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import Approval, ApprovalBelow, CallRecord
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore


class _ToldBefore(Exception):
    """It stands in the history already."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


async def tell_above(store: RunStore, run: Run, calls: Iterable[CallRecord], approval: Approval | None = None) -> None:
    """Tell all runs above which calls of a run wait for a person, or what was decided. Raises StoreUnreachable."""
    if run.parent_call_id is None:
        return
    for call in calls:
        event = ApprovalBelow(
            call_id=call.call_id, tool=call.tool, arguments=call.arguments, digest=call.digest, approval=approval
        )
        above: str | None = run.parent_call_id
        while above is not None:
            above = await _tell(store, run_of(above), event)


async def _tell(store: RunStore, run_id: str, event: ApprovalBelow) -> str | None:
    """Tell one run; the call that it answers itself, None where nobody above is to be told."""

    async def unless_told(run: Run) -> ApprovalBelow:
        if event.told_as in run.told_below:
            raise _ToldBefore(run)
        return event

    try:
        return (await write_from_outside(store, run_id, unless_told)).parent_call_id
    except _ToldBefore as before:
        return before.run.parent_call_id
    except (RunNotFound, RunNotOpen):
        return None  # it has ended, and what is below it with it
