"""Cancelling one call, of a run or of a caller with a loop of their own, whoever works on it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from toolfleet.calls import run_of
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.run.events import CallCancelRequested
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.builtin import CANCEL_WAIT_S
from toolfleet.settings import Settings


@dataclass(frozen=True, slots=True)
class DirectCancel:
    """Cancels calls by their ids."""

    settings: Settings
    overview: Overview
    canceller: Canceller
    store: RunStore

    async def cancel(self, call_id: str, by: str = "") -> CallStanding:
        """Cancel a call; how it stands a moment later. Raises RunNotOpen for one that cannot be cancelled.

        `by` whom stands in the history of its run, if it has one, before anything is done.
        """
        standing = await self.overview.call(call_id)
        _must_be_cancellable(standing, call_id)
        await note_request(self.store, call_id, by)
        deadline_unix_s = standing.deadline_unix_s or time.time() + self.settings.long_call_timeout_s
        request = CancelRequest(call_id, standing.tool or "the call", deadline_unix_s)
        await self.canceller.cancel([request])
        standing = await self.overview.until_over(call_id, within_s=CANCEL_WAIT_S)
        if standing.state is CallState.QUEUED:
            # No worker has it, nor will one say so soon. Its owner finds the stored result when it is told to look.
            await self.canceller.end_unstarted([request])
            await self.store.notify(run_of(call_id))
            standing = await self.overview.until_over(call_id, within_s=CANCEL_WAIT_S)
        return standing


async def note_request(store: RunStore, call_id: str, by: str) -> None:
    """Write down who wants a call no more. A call without a run, or of one that has ended, has nowhere to say it."""
    if by:
        with suppress(RunNotFound, RunNotOpen):
            await write_from_outside(store, run_of(call_id), CallCancelRequested(call_id=call_id, by=by))


def _must_be_cancellable(standing: CallStanding, call_id: str) -> None:
    if standing.is_over:
        raise RunNotOpen(f"call {call_id} has ended already: it is {standing.state}")
    if standing.state is CallState.AWAITING_APPROVAL:
        raise RunNotOpen(f"call {call_id} waits for approval: toolfleet runs deny {call_id}")
