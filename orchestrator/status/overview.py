"""How calls stand, whoever works on them: read from the run's events and from what workers keep in Redis.

Reads only, owns nothing; of a call without a stored run (one of `execute`) it tells what it can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import redis.asyncio

from toolfleet.calls import run_of
from toolfleet.jobs import JobStatus
from toolfleet.log_lines import trace_id_of
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.queue_position import QueuePosition
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.orchestrator.status.call_pages import CallPage, CallsWanted
from toolfleet.orchestrator.status.call_reader import AskedCall, CallReader, FoundCall, handle_of
from toolfleet.orchestrator.status.call_standing import CallStanding, JobStanding
from toolfleet.orchestrator.status.holding import HeldBy, Holders, waits_for
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.seen import CallTimes, SeenRuns
from toolfleet.settings import Settings
from toolfleet.wire import Seal

LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run, how its calls stand in the order of asking, and who works on it ("" for nobody)."""

    run: Run
    calls: tuple[CallStanding, ...]
    owner: str
    changed_unix_s: float
    """When its newest event was stored."""
    set_aside: int = 0
    """How many entries stood in its history that are no part of it; those that were cut off are kept for a while."""


class Overview:
    """Tells how runs and calls stand."""

    def __init__(
        self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, seen: SeenRuns | None = None
    ) -> None:
        """`seen`: what others read with as well."""
        self._store = RunStore(client, settings, seal)
        self._seen = seen or SeenRuns(self._store)
        self._catalog = Catalog(client, settings)
        self._calls = CallReader(client, settings, seal)
        self._holders = Holders(client, settings)

    async def run(self, run_id: str) -> RunOverview:
        """A run and its calls. Raises RunNotFound, StoreUnreachable."""
        run, times, tail = await self._read(run_id)
        run = await with_approvals_below(self._seen, run)
        return RunOverview(
            run=run,
            calls=await self._standings(run, run.calls, times),
            owner=await self._store.owner(run_id),
            changed_unix_s=times.changed_unix_s,
            set_aside=tail + await self._store.kept_aside(run_id),
        )

    async def call(self, call_id: str) -> CallStanding:
        """One call. Raises RunNotFound for one of a stored run that did not ask for it, StoreUnreachable."""
        run_id = run_of(call_id)
        try:
            run, times, _ = await self._read(run_id)
        except RunNotFound:
            return await self._bare(call_id)
        asked = [call for call in run.calls if call.call_id == call_id]
        if not asked:
            raise RunNotFound(f"run {run_id} has no call {call_id}; it has {len(run.calls)}")
        [standing] = await self._standings(run, asked, times)
        return standing

    async def page(self, run_id: str, wanted: CallsWanted) -> CallPage:
        """Some calls of a run in the order of asking. Raises RunNotFound, BadCursor, StoreUnreachable.

        Only those are looked for in Redis that may be among them.
        """
        run, times, _ = await self._read(run_id)
        asked = wanted.candidates(run.calls)
        rows: list[CallStanding] = []
        looked_at = 0
        while asked[looked_at:] and len(rows) <= wanted.limit:
            some = asked[looked_at : looked_at + wanted.limit + 1]
            looked_at += len(some)
            rows += [row for row in await self._standings(run, some, times) if wanted.includes(row)]
        return CallPage.of(run.calls, rows, wanted.limit)

    async def _standings(self, run: Run, calls: Sequence[CallRecord], times: CallTimes) -> tuple[CallStanding, ...]:
        found = await self._calls.read([AskedCall.of(call, priority=run.terms.priority) for call in calls])
        await self._catalog.offered()
        positions = [each.queue_position for each in found.values()]
        holders = await self._holders.of(positions, await self._catalog.workers() if any(positions) else ())
        specs = {call.tool: self._catalog.in_version(call.tool, run.versions.get(call.tool, 0)) for call in calls}
        return tuple(
            _standing(run, call, times, found[call.call_id], holders).masked(specs[call.tool]) for call in calls
        )

    async def until_over(self, call_id: str, *, within_s: float) -> CallStanding:
        """The call once it has ended, or as it stands when the time is up."""
        give_up_at = time.monotonic() + within_s
        while True:
            standing = await self.call(call_id)
            if standing.is_over or time.monotonic() >= give_up_at:
                return standing
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self, run_id: str) -> tuple[Run, CallTimes, int]:
        """The run, the times of its calls, and how many entries behind it are no part of it."""
        stored, times = await self._seen.read(run_id)
        return stored.run, times, len(stored.tail)

    async def _bare(self, call_id: str) -> CallStanding:
        found = (await self._calls.read([AskedCall(call_id)]))[call_id]
        record = found.job.record.call if found.job else None
        await self._catalog.offered()
        return CallStanding(
            call_id=call_id,
            run_id=run_of(call_id),
            tool=record.tool if record else "",
            arguments=record.arguments if record else "",
            state=found.state,
            deadline_unix_s=record.deadline_unix_s if record else None,
            progress=found.progress,
            job=_job_standing(found.job),
            result=found.result,
        ).masked(self._catalog.in_version(record.tool, record.version) if record else None)


def _held_by(position: QueuePosition | None, holders: Mapping[str, HeldBy]) -> HeldBy | None:
    holder = holders.get(position.consumer) if position else None
    return holder and holder.model_copy(update={"since_s": position.held_s if position else None})


def _job_standing(job: JobStatus | None) -> JobStanding | None:
    if job is None:
        return None
    return JobStanding(
        external_id=job.record.external_id,
        polls=job.state.polls,
        errors=job.state.errors,
        next_poll_s=job.next_poll_s,
    )


def _took_s(from_unix_s: float | None, to_unix_s: float | None) -> float | None:
    """How long it took; never below zero, whatever the clocks of two machines say."""
    return None if from_unix_s is None or to_unix_s is None else round(max(0.0, to_unix_s - from_unix_s), 4)


def _standing(
    run: Run, call: CallRecord, times: CallTimes, found: FoundCall, holders: Mapping[str, HeldBy]
) -> CallStanding:
    sent_unix_s = times.sent_unix_s.get(call.call_id)
    attempt = found.result.attempt if found.result else None
    began_unix_s = attempt.began_unix_s if attempt else None
    noted_unix_s = times.back_unix_s.get(call.call_id) if found.state.is_terminal else None
    ended_unix_s = attempt.ended_unix_s if attempt else noted_unix_s
    position = found.queue_position
    since_unix_s = sent_unix_s or began_unix_s
    age_s = (position and position.held_s) if since_unix_s is None else max(0.0, time.time() - since_unix_s)
    return CallStanding(
        call_id=call.call_id,
        run_id=run.run_id,
        turn=call.turn,
        tool=call.tool,
        arguments=call.arguments,
        digest=call.digest,
        state=found.state,
        age_s=None if age_s is None else round(age_s, 1),
        deadline_unix_s=call.deadline_unix_s,
        handle=handle_of(call),
        attempt=attempt.number if attempt else position.attempt if position else None,
        worker=attempt.worker if attempt else "",
        trace_id=(run.trace and trace_id_of(run.trace.traceparent)) or "",
        began_unix_s=began_unix_s,
        ended_unix_s=ended_unix_s,
        took_s=_took_s(began_unix_s or sent_unix_s, ended_unix_s),
        queue_position=position.before if position else None,
        waits_for=waits_for(position),
        held_by=_held_by(position, holders),
        progress=found.progress,
        job=_job_standing(found.job),
        result=found.result or (None if call.is_left_open else call.result),
    )
