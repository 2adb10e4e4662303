"""How calls stand, whoever works on them: read from the run's events and from what workers keep in Redis.

Reads only, owns nothing; of a call without a stored run (one of `execute`) it tells what it can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import redis.asyncio

from toolfleet import jobs
from toolfleet.calls import Failed, FailureKind, Progress, Record, Returned, Submitted, ToolResult, run_of
from toolfleet.connections import translating
from toolfleet.errors import RunNotFound
from toolfleet.masks import MASK, mask_arguments
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.queue_position import Place, Whereabouts
from toolfleet.orchestrator.run.events import CallRecord, CallsBack, CallsSent, RunStarted, SlowResultDelivered
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_store import Entry, RunStore, folded
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

QUEUED: Final = "queued"
RUNNING: Final = "running"
SUBMITTED: Final = "submitted"
AWAITING_APPROVAL: Final = "awaiting_approval"
UNKNOWN: Final = "unknown"
"""Nothing in Redis tells of the call: it is queued, or runs without saying how far it is, or never was."""

UNDER_WAY: Final = frozenset({QUEUED, RUNNING, SUBMITTED, AWAITING_APPROVAL, UNKNOWN})

LOOK_EVERY_S: Final = 0.1

LOOKED_FOR_MAX: Final = 200
"""How many calls of one run are looked for in their queues, which takes a search for each."""


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
    state: str
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
        return self.state not in UNDER_WAY

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


class Overview:
    """Tells how runs and calls stand."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._store = RunStore(client, settings, seal)
        self._catalog = Catalog(client, settings)
        self._whereabouts = Whereabouts(client, settings)

    async def run(self, run_id: str) -> RunOverview:
        """A run and its calls. Raises RunNotFound, StoreUnreachable."""
        run, times = await self._read(run_id)
        open_calls = [] if run.state.is_terminal else [call for call in run.calls if _is_open(call)]
        seen = await self._seen({call.call_id: call.tool for call in open_calls}, run.terms.priority)
        tools = await self._catalog.offered()
        return RunOverview(
            run=run,
            calls=tuple(_standing(run, call, times, seen).masked(tools.get(call.tool)) for call in run.calls),
            owner=await self._store.owner(run_id),
            changed_unix_s=times.changed_unix_s,
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

    async def _read(self, run_id: str) -> tuple[Run, _Times]:
        """The run, and the times of its calls."""
        entries = await self._store.entries(run_id)
        if not entries or not isinstance(entries[0].event, RunStarted):
            return (await self._store.load(run_id)).run, _Times({}, {}, time.time())
        return folded(Run.start(entries[0].event), entries[1:]), _times(entries)

    async def _bare(self, call_id: str) -> CallStanding:
        seen = (await self._seen({call_id: ""}, Priority.NORMAL))[call_id]
        record = seen.job.record.call if seen.job else None
        return CallStanding(
            call_id=call_id,
            run_id=run_of(call_id),
            tool=record.tool if record else "",
            arguments=record.arguments if record else "",
            state=seen.state(otherwise=UNKNOWN),
            deadline_unix_s=record.deadline_unix_s if record else None,
            progress=seen.progress,
            job=seen.job_standing,
            result=seen.result,
        ).masked((await self._catalog.offered()).get(record.tool if record else ""))

    async def _seen(self, tools: Mapping[str, str], priority: Priority) -> dict[str, _Seen]:
        """What there is in Redis about these calls, by id, and their tools."""
        if not tools:
            return {}
        keys = self._settings.keys
        with translating(self._settings):
            pipeline = self._client.pipeline(transaction=False)
            for call_id in tools:
                pipeline.get(keys.result(call_id))
                pipeline.get(keys.progress(call_id))
                pipeline.exists(keys.job(call_id))
                pipeline.hget(keys.head(call_id), "state")
            found = cast("list[bytes | None]", await pipeline.execute())
        queues = {name: spec.queue for name, spec in (await self._catalog.offered()).items()}
        seen = {}
        for position, (call_id, tool) in enumerate(tools.items()):
            result, progress, job, child = found[4 * position : 4 * position + 4]
            is_looked_for = position < LOOKED_FOR_MAX and not (result or job or child)
            seen[call_id] = _Seen(
                result=self._seal.open_result(result, call_id) if result else None,
                progress=self._seal.open_progress(progress, call_id) if progress else None,
                job=await jobs.status(self._client, self._settings, self._seal, call_id) if job else None,
                place=await self._place(call_id, queues.get(tool), priority) if is_looked_for else None,
                is_a_run=child is not None,
            )
        return seen

    async def _place(self, call_id: str, queue: str | None, priority: Priority) -> Place | None:
        return await self._whereabouts.of(call_id, queue, priority) if queue else None


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
            case SlowResultDelivered(results=results):
                times.back_unix_s.update(dict.fromkeys(results, unix_s(entry)))
    return times


@dataclass(frozen=True, slots=True)
class _Seen:
    """What there is in Redis about one call."""

    result: ToolResult | None = None
    progress: Progress | None = None
    job: jobs.JobStatus | None = None
    place: Place | None = None
    is_a_run: bool = False
    """The call is answered by a run below its own."""

    def state(self, *, otherwise: str) -> str:
        if self.result is not None:
            return word(self.result)
        if self.job is not None:
            return SUBMITTED
        if self.place is not None:
            return RUNNING if self.place.is_with_worker else QUEUED
        return RUNNING if self.progress or self.is_a_run else otherwise

    @property
    def job_standing(self) -> JobStanding | None:
        if self.job is None:
            return None
        return JobStanding(
            external_id=self.job.record.external_id,
            polls=self.job.state.polls,
            errors=self.job.state.errors,
            next_poll_s=self.job.next_poll_s,
        )


def _took_s(from_unix_s: float | None, to_unix_s: float | None) -> float | None:
    """How long it took; never below zero, whatever the clocks of two machines say."""
    return None if from_unix_s is None or to_unix_s is None else round(max(0.0, to_unix_s - from_unix_s), 4)


def word(result: ToolResult) -> str:
    """One word for what a call came to."""
    match result:
        case Returned():
            return "succeeded"
        case Submitted():
            return SUBMITTED
        case Failed(kind=FailureKind.CANCELLED | FailureKind.EXPIRED | FailureKind.IN_DOUBT as kind):
            return kind.value
        case _:
            return "failed"


def unix_s(entry: Entry) -> float:
    """When an event was stored, by the server's clock: its id begins with it."""
    return int(entry.id.partition("-")[0]) / 1000


def _is_open(call: CallRecord) -> bool:
    return call.result is None or call.is_slow_and_open


def _standing(run: Run, call: CallRecord, times: _Times, seen: Mapping[str, _Seen]) -> CallStanding:
    found = seen.get(call.call_id, _Seen())
    known = call.late_result or call.result
    ended = known if call.late_result or not isinstance(known, Submitted) else None
    result = ended or found.result
    if result is not None:
        state = word(result)
    elif call.awaits_approval and call.approval is None:
        state = AWAITING_APPROVAL
    else:
        state = found.state(otherwise="failed" if run.state.is_terminal else QUEUED)
    sent_unix_s = times.sent_unix_s.get(call.call_id)
    is_over = result is not None and not isinstance(result, Submitted)
    attempt = result.attempt if isinstance(result, Returned | Failed) else None
    began_unix_s = attempt.began_unix_s if attempt else None
    ended_unix_s = attempt.ended_unix_s if attempt else times.back_unix_s.get(call.call_id) if is_over else None
    return CallStanding(
        call_id=call.call_id,
        run_id=run.run_id,
        turn=call.turn,
        tool=call.tool,
        arguments=call.arguments,
        state=state,
        age_s=None if sent_unix_s is None else round(max(0.0, time.time() - sent_unix_s), 1),
        deadline_unix_s=call.deadline_unix_s,
        handle=call.handle or (call.result.handle if isinstance(call.result, Submitted) else ""),
        attempt=attempt.number if attempt else found.place.attempt if found.place else None,
        worker=attempt.worker if attempt else "",
        began_unix_s=began_unix_s,
        ended_unix_s=ended_unix_s,
        took_s=_took_s(began_unix_s or sent_unix_s, ended_unix_s),
        queue_position=found.place.before if found.place else None,
        progress=found.progress,
        job=found.job_standing,
        result=result,
    )
