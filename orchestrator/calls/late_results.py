"""Results that somebody asks for by a handle, shown to the interceptors of the run or the call that they belong to.

Whoever asks gets what a model would be told: no result goes round the interceptors because it came late. Each asking
shows a result that no run has recorded yet anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.orchestrator.calls.interception import intercept_late
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import HandleRecord
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.chain import Interceptors
from toolfleet.orchestrator.tools.offer import Offering


@dataclass(frozen=True, slots=True)
class LateResults:
    """Shows what comes late, to the interceptors of one orchestrator."""

    catalog: Catalog
    offering: Offering
    store: RunStore
    interceptors: Interceptors
    limits: ArgumentLimits

    async def shown(self, status: Status, record: HandleRecord) -> Status:
        """How the handle's call stands, with its result as the interceptors want it.

        Raises UnknownInterceptor when its run has one that is not here, StoreUnreachable.
        """
        if status.result is None:
            return status
        try:
            run = (await self.store.load(record.run_id)).run
        except RunNotFound:
            return await self._of_single_call(status, record)
        return await self._of_run(status, run, record)

    async def _of_run(self, status: Status, run: Run, record: HandleRecord) -> Status:
        scope = await late_scope(run, self.offering, self.interceptors)
        # A run that has ended in the midst of handing out the handle does not know it.
        call = run.tasks.get(status.task_id) or _as_call(record)
        return await intercept_late(status, call, scope, self.limits)

    async def _of_single_call(self, status: Status, record: HandleRecord) -> Status:
        chain = self.interceptors.chosen(())
        if not chain:
            return status
        scope = CallScope(
            run_id=record.run_id,
            offered=await self.catalog.offered(),
            interceptors=chain,
            context=record.asked.context if record.asked else {},
            tenant=record.principal,
            subject=record.subject,
        )
        return await intercept_late(status, _as_call(record), scope, self.limits)


async def late_scope(run: Run, offering: Offering, interceptors: Interceptors) -> CallScope:
    """What interceptors are told of a call of a run that is back after the run has rested, or is asked for by a handle.

    Raises UnknownInterceptor for a run that names one which is not here, StoreUnreachable.
    """
    chain = interceptors.chosen(run.terms.interceptors)
    return CallScope(
        run_id=run.run_id,
        # Without interceptors nobody looks at the specs.
        offered=await offering.known(run) if chain else {},
        interceptors=chain,
        context=run.terms.context,
        tenant=run.terms.tenant,
        subject=run.terms.subject,
    )


def _as_call(record: HandleRecord) -> CallRecord:
    """What a handle knows of its call."""
    return CallRecord(
        call_id=record.call_id,
        turn=1,
        requested_id="",
        tool=record.tool,
        arguments=record.asked.arguments if record.asked else "{}",
        deadline_unix_s=record.deadline_unix_s,
    )
