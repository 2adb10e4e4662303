"""Cancelling one call, of a run or of a caller with a loop of their own, whoever works on it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from toolfleet.calls import run_of
from toolfleet.orchestrator.errors import RunNotOpen
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import Overview
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

    async def cancel(self, call_id: str) -> CallStanding:
        """Cancel a call; how it stands a moment later. Raises RunNotOpen for one that cannot be cancelled."""
        standing = await self.overview.call(call_id)
        _must_be_cancellable(standing, call_id)
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


def _must_be_cancellable(standing: CallStanding, call_id: str) -> None:
    if standing.is_over:
        raise RunNotOpen(f"call {call_id} has ended already: it is {standing.state}")
    if standing.state is CallState.AWAITING_APPROVAL:
        raise RunNotOpen(f"call {call_id} waits for approval: toolfleet runs deny {call_id}")
