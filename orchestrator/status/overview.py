"""How calls stand, whoever works on them: read from the run's events and from what workers keep in Redis.

Reads only, owns nothing; of a call without a stored run (one of `execute`) it tells what it can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import redis.asyncio

from toolfleet.calls import Failed, Progress, Record, Returned, Submitted, run_of
from toolfleet.jobs import JobStatus
from toolfleet.masks import MASK, mask_arguments
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.run.events import (
    CallRecord,
    CallsBack,
    CallsSent,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.orchestrator.status.call_reader import AskedCall, CallReader, FoundCall, handle_of
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.store.history import Entry
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

LOOK_EVERY_S: Final = 0.1


class JobStanding(Record):
    """A job in another system that a call waits for."""

    external_id: str
    polls: int
    errors: int
    """Polls that failed in a row."""
    next_poll_s: float | None
    """None where nobody polls: only its completion from outside can end it in time."""


class CallStanding(Record):
    """How one call stands now. `age_s` counts from when it was sent, and is None for one that was not."""

    call_id: str
    run_id: str
    turn: int = 0
    tool: str = ""
    arguments: str = ""
    """With secrets masked; all of it where no live worker says which parameters hold secrets."""
    state: CallState
    age_s: float | None = None
    deadline_unix_s: float | None = None
    handle: str = ""
    attempt: int | None = None
    """How often a worker was given it; None where its queue was not looked at, or does not tell."""
    worker: str = ""
    """Who has ended it, "" where no worker has."""
    began_unix_s: float | None = None
    """When that worker had it; None where no worker has ended it."""
    ended_unix_s: float | None = None
    """When it ended or, where no worker has ended it, when its run took note of that."""
    took_s: float | None = None
    """From its beginning to its end; with the time in the queue where its beginning is not known."""
    queue_position: int | None = None
    """How many calls are taken before it."""
    progress: Progress | None = None
    job: JobStanding | None = None
    result: Returned | Failed | Submitted | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state.is_terminal

    def masked(self, spec: ToolSpec | None) -> CallStanding:
        """The same for whoever only looks."""
        shown = mask_arguments(self.arguments, spec.input_schema) if spec else self.arguments and MASK
        return self.model_copy(update={"arguments": shown})


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

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._store = RunStore(client, settings, seal)
        self._catalog = Catalog(client, settings)
        self._calls = CallReader(client, settings, seal)

    async def run(self, run_id: str) -> RunOverview:
        """A run and its calls. Raises RunNotFound, StoreUnreachable."""
        run, times, tail = await self._read(run_id)
        run = await with_approvals_below(self._store, run)
        found = await self._calls.read([AskedCall.of(call, priority=run.terms.priority) for call in run.calls])
        tools = await self._catalog.offered()
        return RunOverview(
            run=run,
            calls=tuple(
                _standing(run, call, times, found[call.call_id]).masked(tools.get(call.tool)) for call in run.calls
            ),
            owner=await self._store.owner(run_id),
            changed_unix_s=times.changed_unix_s,
            set_aside=tail + await self._store.kept_aside(run_id),
        )

    async def call(self, call_id: str) -> CallStanding:
        """One call. Raises RunNotFound for one of a stored run that did not ask for it, StoreUnreachable."""
        run_id = run_of(call_id)
        try:
            of_run = await self.run(run_id)
        except RunNotFound:
            return await self._bare(call_id)
        for call in of_run.calls:
            if call.call_id == call_id:
                return call
        raise RunNotFound(f"run {run_id} has no call {call_id}; it has {len(of_run.calls)}")

    async def until_over(self, call_id: str, *, within_s: float) -> CallStanding:
        """The call once it has ended, or as it stands when the time is up."""
        give_up_at = time.monotonic() + within_s
        while True:
            standing = await self.call(call_id)
            if standing.is_over or time.monotonic() >= give_up_at:
                return standing
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self, run_id: str) -> tuple[Run, _Times, int]:
        """The run, the times of its calls, and how many entries behind it are no part of it."""
        stored, entries = await self._store.history(run_id)
        return stored.run, _times(entries), len(stored.tail)

    async def _bare(self, call_id: str) -> CallStanding:
        found = (await self._calls.read([AskedCall(call_id)]))[call_id]
        record = found.job.record.call if found.job else None
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
        ).masked((await self._catalog.offered()).get(record.tool if record else ""))


class _Times(NamedTuple):
    """When calls were sent, and when it was written down that they had ended, by call id; and the newest event."""

    sent_unix_s: dict[str, float]
    back_unix_s: dict[str, float]
    changed_unix_s: float


def _times(entries: Sequence[Entry]) -> _Times:
    times = _Times({}, {}, unix_s(entries[-1]))
    for entry in entries:
        match entry.event:
            case CallsSent(deadlines_unix_s=sent):
                times.sent_unix_s.update(dict.fromkeys(sent, unix_s(entry)))
            case CallsBack(results=results, fetched=fetched):
                times.back_unix_s.update(dict.fromkeys([*results, *fetched], unix_s(entry)))
            case SlowResultDelivered(results=results) | RunStopped(results=results):
                times.back_unix_s.update(dict.fromkeys(results, unix_s(entry)))
    return times


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


def unix_s(entry: Entry) -> float:
    """When an event was stored, by the server's clock: its id begins with it."""
    return int(entry.id.partition("-")[0]) / 1000


def _standing(run: Run, call: CallRecord, times: _Times, found: FoundCall) -> CallStanding:
    sent_unix_s = times.sent_unix_s.get(call.call_id)
    attempt = found.result.attempt if found.result else None
    began_unix_s = attempt.began_unix_s if attempt else None
    noted_unix_s = times.back_unix_s.get(call.call_id) if found.state.is_terminal else None
    ended_unix_s = attempt.ended_unix_s if attempt else noted_unix_s
    position = found.queue_position
    return CallStanding(
        call_id=call.call_id,
        run_id=run.run_id,
        turn=call.turn,
        tool=call.tool,
        arguments=call.arguments,
        state=found.state,
        age_s=None if sent_unix_s is None else round(max(0.0, time.time() - sent_unix_s), 1),
        deadline_unix_s=call.deadline_unix_s,
        handle=handle_of(call),
        attempt=attempt.number if attempt else position.attempt if position else None,
        worker=attempt.worker if attempt else "",
        began_unix_s=began_unix_s,
        ended_unix_s=ended_unix_s,
        took_s=_took_s(began_unix_s or sent_unix_s, ended_unix_s),
        queue_position=position.before if position else None,
        progress=found.progress,
        job=_job_standing(found.job),
        result=found.result or (None if call.is_left_open else call.result),
    )
