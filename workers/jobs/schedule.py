"""The schedule of jobs in Redis as a worker moves it: submit, claim, report. Batches what can go together.

Waits for Redis however long it is away where a word is owed; knows nothing of the functions that tools have for jobs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import redis
import redis.asyncio
import stamina
import structlog

from toolfleet.calls import Attempt, JobRecord, Submitted
from toolfleet.errors import Refused
from toolfleet.jobs import ends_unix_ms, state_of
from toolfleet.keys import DEAD_LETTERS_MAX, REPLIES_MAX, REPLIES_TTL_S, RESULT_TTL_S
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Outcome
from toolfleet.workers.jobs.decide import Claimed, End, Verdict
from toolfleet.workers.jobs.scripts import CLAIM, REPORT, SUBMIT

log = structlog.get_logger("toolfleet.workers")

MAX_BATCH: Final = 200
"""Jobs in one script call."""


class Due(NamedTuple):
    """What a claim brought. `next_in_s` is None while nothing is scheduled."""

    jobs: list[Claimed]
    next_in_s: float | None


async def submit(
    client: redis.asyncio.Redis, settings: Settings, seal: Seal, delivery: Delivery, job: JobRecord
) -> Outcome:
    """Put a job in the place of a delivered call, which is acknowledged: LATE if the call is another worker's by now.

    ALREADY if the call has a job or a result. Waits for Redis and is not cancelled: what was started elsewhere must not
    be forgotten, nor its call be handed to another worker.
    """
    submitting = asyncio.ensure_future(_submit(client, settings, seal, delivery, job))
    while not submitting.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(submitting)
    return submitting.result()


async def _submit(
    client: redis.asyncio.Redis, settings: Settings, seal: Seal, delivery: Delivery, job: JobRecord
) -> Outcome:
    call, keys = job.call, settings.keys
    # The other system's id is nobody's business on the way.
    told = Submitted(poll_after_s=job.poll_after_s, message=job.message)
    script = client.register_script(SUBMIT)
    async for attempt in stamina.retry_context(on=redis.RedisError, attempts=None, timeout=None, wait_max=2.0):
        with attempt:
            outcome: int = await script(
                keys=[
                    *(keys.result(call.call_id), keys.job(call.call_id), keys.jobs(call.tool)),
                    *(keys.cancelled(call.call_id), keys.replies(call.reply_to)),
                ],
                args=[
                    *(GROUP, RETURNED, delivery.stream, delivery.consumer, delivery.entry_id),
                    *(call.call_id, seal.close_job(job, call.call_id), call.tool, call.reply_to),
                    *(_first_wait_ms(job), _ms(call.deadline_unix_s), ends_unix_ms(call.deadline_unix_s)),
                    *(int(job.polled or job.cancellable), seal.close_result(told, call.call_id)),
                    *(REPLIES_TTL_S, REPLIES_MAX),
                ],
            )
    return Outcome(outcome)


class Schedule:
    """Claims due jobs of one event loop, and says what came of them."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, tools: Sequence[str]) -> None:
        self._client = client
        self._keys = settings.keys
        self._lease_ms = _ms(settings.poll_lease_s)
        self._seal = seal
        self._schedules = [self._keys.jobs(tool) for tool in tools]
        self._tools = frozenset(tools)
        self._claim = client.register_script(CLAIM)
        self._report = client.register_script(REPORT)
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[Outcome]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def claim(self, at_most: int) -> Due:
        """Jobs that are due, for this worker alone until the lease ends. Raises redis.RedisError."""
        # Another tool's jobs come first each time, so that one with too many does not starve the others.
        self._schedules.append(self._schedules.pop(0))
        now_ms, next_ms, found = await self._claim(
            keys=self._schedules,
            args=[self._keys.job(""), self._keys.cancelled(""), min(at_most, MAX_BATCH), self._lease_ms],
        )
        jobs = []
        for call_id, fence, sealed, state, marks in found:
            try:
                record = self._open(call_id.decode(), sealed)
                jobs.append(Claimed(fence, record, state_of(record, state), bool(marks), now_ms / 1000))
            except (Refused, ValueError) as refusal:
                await self._bury(call_id.decode(), fence, sealed, str(refusal))
        return Due(jobs, None if next_ms < 0 else max(0.0, (next_ms - now_ms) / 1000))

    async def settle(self, job: Claimed, verdict: Verdict) -> Outcome:
        """Say what follows for a job; LATE if it was claimed again or has ended since."""
        call = job.record.call
        if isinstance(verdict, End):
            result = verdict.result.model_copy(update={"attempt": _attempt(job.record, time.time())})
            return await self._say(job, "end", 0.0, self._seal.close_result(result, call.call_id))
        what = "wait" if verdict.heeds_cancel else "retry"
        return await self._say(job, what, verdict.delay_s, verdict.state.model_dump_json())

    async def hold(self, job: Claimed) -> Outcome:
        """Keep a claim for another lease."""
        return await self._say(job, "hold", self._lease_ms / 1000, "")

    async def give_back(self, job: Claimed) -> Outcome:
        """Let another worker have it at once, as if it had not been claimed here."""
        return await self._say(job, "wait", 0.0, job.state.model_dump_json())

    def _open(self, call_id: str, sealed: bytes) -> JobRecord:
        record = self._seal.open_job(sealed, call_id)
        if record.call.tool not in self._tools:
            raise Refused("the job belongs to another tool")
        return record

    async def _bury(self, call_id: str, fence: int, sealed: bytes, reason: str) -> None:
        log.warning("job_refused", call_id=call_id, reason=reason)
        letter: dict[Any, Any] = {"reason": f"job: {reason}", "id": call_id, "text": sealed[:65536]}
        await self._client.xadd(self._keys.dead_letters(), letter, maxlen=DEAD_LETTERS_MAX, approximate=True)
        await self._client.hincrby(self._keys.counters(), "refused_jobs", 1)
        await self._send([("drop", call_id, fence, 0, 0, "")])

    def _say(self, job: Claimed, what: str, wait_s: float, text: str | bytes) -> asyncio.Future[Outcome]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        call = job.record.call
        self._waiting.append(((what, call.call_id, job.fence, _ms(wait_s), _ms(call.deadline_unix_s), text), outcome))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        return outcome

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                # Said twice is harmless: the second time the job is gone, or the same wait begins a little later.
                async for attempt in stamina.retry_context(
                    on=redis.RedisError, attempts=None, timeout=None, wait_max=2.0
                ):
                    with attempt:
                        outcomes = await self._send([word for word, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if not future.done():
                        future.set_result(Outcome(outcome))
        finally:
            self._flushing = None

    async def _send(self, words: Sequence[tuple[Any, ...]]) -> list[int]:
        keys = self._keys
        prefixes = [keys.job(""), keys.jobs(""), keys.result(""), keys.cancelled(""), keys.replies("")]
        limits = [RESULT_TTL_S * 1000, REPLIES_TTL_S, REPLIES_MAX]
        outcomes: list[int] = await self._report(
            args=[*prefixes, *limits, *(field for word in words for field in word)]
        )
        return outcomes


def _first_wait_ms(job: JobRecord) -> int:
    """Without a poll function a worker has nothing to do before the deadline, unless it is asked to cancel."""
    until_deadline_s = job.call.deadline_unix_s - job.submitted_unix_s
    return _ms(job.poll_after_s if job.polled else max(0.0, until_deadline_s))


def _ms(seconds: float) -> int:
    # Upwards: a job that comes up at its deadline must find it passed, or it would be asked about once more.
    return math.ceil(seconds * 1000)


def _attempt(job: JobRecord, now_unix_s: float) -> Attempt:
    return Attempt(worker="", number=job.attempt, began_unix_s=job.submitted_unix_s, ended_unix_s=round(now_unix_s, 4))
