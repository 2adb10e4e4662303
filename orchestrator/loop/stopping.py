"""Runs that are ended from outside, with all that is under way for them: calls on workers, and the runs of agents."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.run.events import RunStopped
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore


@dataclass(frozen=True, slots=True)
class Stopping:
    """Ends runs, whoever works on them."""

    store: RunStore
    canceller: Canceller

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End a run now, and cancel what is under way for it. Raises RunNotOpen, RunNotFound."""
        before = (await self.store.load(run_id)).run
        # Written first: a run that heard of a cancelled call before would go on with that as a result.
        run = await write_from_outside(self.store, run_id, RunStopped(state="cancelled", reason=reason))
        await self.cancel_calls(before, reason)
        return run

    async def cancel_calls(self, run: Run, reason: str) -> None:
        """Cancel what is under way for a run, the runs of its agents with all below them."""
        for call in run.calls_under_way:
            if call.is_agents:
                with suppress(RunNotFound, RunNotOpen):
                    await self.cancel(call.call_id, reason)  # an agent's run has its call's id
        now = time.time()
        await self.canceller.cancel(
            [CancelRequest(call.call_id, call.tool, call.deadline_unix_s or now) for call in run.calls_under_way]
        )
