"""Cancels a batch for somebody who looks on: by a word to its process or, where that is gone, run by run."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.store.batches import Batches, BatchRecord, BatchState, cancelled_by

CANCELLED_AT_ONCE: Final = 200
"""Runs that are looked at, and cancelled, before the next are read."""


async def cancel_batch(
    batches: Batches, orchestrator: Orchestrator, batch_id: str, *, tenant: str | None, by: str
) -> BatchRecord:
    """Cancel a batch, and return how it stands: its process stops within seconds, and cancels the runs in hand.

    Those of a batch whose process is gone are cancelled here. Raises BatchNotFound, BatchNotOpen, StoreUnreachable.
    """
    record = await batches.cancel(batch_id, tenant=tenant, by=by)
    if record.state is not BatchState.CANCELLED:
        return record
    after = ""
    while True:
        found = await batches.runs(record, limit=CANCELLED_AT_ONCE, after=after)
        for head in found.heads:
            if not head.state.is_terminal:
                with suppress(RunNotOpen, RunNotFound):  # it has ended meanwhile
                    await orchestrator.cancel(head.run_id, cancelled_by(by), by=by)
        if not (after := found.after):
            return record
