"""What is known of the runs below a run, those of its agents: which of their calls wait for a person. Reads only."""

from __future__ import annotations

from contextlib import suppress

from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.seen import SeenRuns


async def with_approvals_below(store: RunStore | SeenRuns, run: Run) -> Run:
    """The run with the calls of its agents' runs, however deep, that wait for approval. Raises StoreUnreachable."""
    if run.state.is_terminal:
        return run
    below: list[CallRecord] = []
    for call in run.calls_under_way:
        if call.is_agents:
            with suppress(RunNotFound):
                child = await with_approvals_below(store, (await store.load(call.call_id)).run)
                below += child.awaiting_approval
    return run.model_copy(update={"awaiting_below": tuple(below)}) if below else run
