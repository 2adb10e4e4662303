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

import orjson
import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.calls import Attempt, JobRecord, Submitted
from toolfleet.errors import Refused, StoreRefuses
from toolfleet.forged import TrueResult, is_forged, replace_forged
from toolfleet.jobs import ends_unix_ms, name_of, state_of
from toolfleet.keys import DEAD_LETTERS_MAX
from toolfleet.logs import FactLog
from toolfleet.outages import until_redis_is_back
from toolfleet.scripts import wire_script
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.spendings import add_up, spending_of
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Outcome
from toolfleet.workers.jobs.decide import Claimed, End, Verdict

log = FactLog("toolfleet.workers")

MAX_BATCH: Final = 200
"""Jobs in one script call."""

SUBMIT: Final = wire_script("submit_job")
CLAIM: Final = wire_script("claim_jobs")
REPORT: Final = wire_script("report_jobs")


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
    # watched: its result is returned below
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
    asked = {
        "stream": delivery.stream,
        "consumer": delivery.consumer,
        "entry": delivery.entry_id,
        "gates": delivery.gates,
        "call": call.call_id,
        "tool": call.tool,
        "reply_to": call.reply_to,
        "name": name_of(job),
        "is_scheduled": job.polled or job.cancellable,
        "first_wait_ms": _first_wait_ms(job),
        "deadline_ms": _ms(call.deadline_unix_s),
        "ends_ms": ends_unix_ms(call.deadline_unix_s),
    }
    script = client.register_script(SUBMIT)

    async def take_away() -> bool:
        """Whether what stood there as the call's result was nobody's, and is gone."""
        nothing = TrueResult(call.call_id, b"", call.reply_to)
        return await replace_forged(client, keys, seal, nothing) == Outcome.SETTLED

    async def submit() -> int:
        outcome: int = await script(
            keys=[
                *(keys.result(call.call_id), keys.job(call.call_id), keys.jobs(call.tool)),
                *(keys.cancelled(call.call_id), keys.replies(call.reply_to), keys.job_ended(call.call_id)),
            ],
            args=[orjson.dumps(asked), seal.close_job(job, call.call_id), seal.close_result(told, call.call_id)],
        )
        return outcome

    outcome = await until_redis_is_back(submit)
    if outcome == Outcome.ALREADY and await until_redis_is_back(take_away):
        outcome = await until_redis_is_back(submit)
    return Outcome(outcome)


class _Word(NamedTuple):
    """What is said of a job: what report_jobs.lua is given for it."""

    said: bytes
    text: str | bytes


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
        prefixes = {"jobs": self._keys.job(""), "schedules": self._keys.jobs(""), "results": self._keys.result("")}
        prefixes |= {"marks": self._keys.cancelled(""), "replies": self._keys.replies("")}
        prefixes |= {"ended": self._keys.job_ended("")}
        self._prefixes = orjson.dumps(prefixes)
        self._batcher = Batcher(self._say_again, max_batch=MAX_BATCH)

    async def claim(self, at_most: int) -> Due:
        """Jobs that are due, for this worker alone until the lease ends. Raises StoreUnreachable."""
        # Another tool's jobs come first each time, so that one with too many does not starve the others.
        self._schedules.append(self._schedules.pop(0))
        keys = self._keys
        prefixes = [keys.job(""), keys.cancelled(""), keys.result(""), keys.job_ended("")]
        now_ms, next_ms, found, of_wrong_type = await self._claim(
            keys=self._schedules, args=[*prefixes, min(at_most, MAX_BATCH), self._lease_ms]
        )
        for key in of_wrong_type:
            skip("job", "of another type than a job or a schedule", key=text_of(key))
            await self._count()
        jobs = []
        for call_id, fence, sealed, state, marks, result, ended in found:
            try:
                record = self._open(text_of(call_id), sealed)
            except (Refused, ValueError) as refusal:
                await self._bury(call_id, fence, sealed, str(refusal))
                continue
            job = Claimed(fence, record, state_of(record, state), bool(marks), now_ms / 1000)
            if ended == name_of(record).encode() or (result and not is_forged(self._seal, result, record.call.call_id)):
                skip("ended_job", "its call has ended", call_id=record.call.call_id)
                await self._say([_word("drop", job)])
            else:
                jobs.append(job)
        return Due(jobs, None if next_ms < 0 else max(0.0, (next_ms - now_ms) / 1000))

    async def settle(self, job: Claimed, verdict: Verdict) -> Outcome:
        """Say what follows for a job; LATE if it was claimed again or has ended since."""
        call = job.record.call
        if isinstance(verdict, End):
            fleets_own = {"attempt": _attempt(job.record, time.time()), "spent": job.record.spent}
            result = verdict.result.model_copy(update=fleets_own)
            outcome = await self._end(job, self._seal.close_result(result, call.call_id))
            if outcome is Outcome.SETTLED and (spending := spending_of(call.tool, result)):
                await add_up(self._client, self._keys, [spending])
            return outcome
        what = "wait" if verdict.heeds_cancel else "retry"
        return await self._tell(job, what, verdict.delay_s, verdict.state.model_dump_json())

    async def _end(self, job: Claimed, sealed: bytes) -> Outcome:
        outcome = await self._tell(job, "end", 0.0, sealed)
        if outcome is not Outcome.ALREADY:
            return outcome
        result = TrueResult(job.record.call.call_id, sealed, job.record.call.reply_to)

        async def replace() -> int:
            return await replace_forged(self._client, self._keys, self._seal, result)

        return Outcome(await until_redis_is_back(replace))

    async def hold(self, job: Claimed) -> Outcome:
        """Keep a claim for another lease."""
        return await self._tell(job, "hold", self._lease_ms / 1000, "")

    async def give_back(self, job: Claimed) -> Outcome:
        """Let another worker have it at once, as if it had not been claimed here."""
        return await self._tell(job, "wait", 0.0, job.state.model_dump_json())

    def _open(self, call_id: str, sealed: bytes) -> JobRecord:
        record = self._seal.open_job(sealed, call_id)
        if record.call.tool not in self._tools:
            raise Refused("the job belongs to another tool")
        return record

    async def _bury(self, name: bytes, fence: int, sealed: bytes, reason: str) -> None:
        call_id = text_of(name)
        skip("job", reason, call_id=call_id)
        letter: dict[Any, Any] = {"reason": f"job: {reason}", "id": call_id, "text": sealed[:65536]}
        with suppress(StoreRefuses):  # as in _count
            await self._client.xadd(self._keys.dead_letters(), letter, maxlen=DEAD_LETTERS_MAX, approximate=True)
        await self._count()
        nothing_known = {"what": "drop", "call": call_id, "fence": fence, "wait_ms": 0}
        await self._say([_Word(orjson.dumps(nothing_known), "")])
        if call_id.encode() != name:  # no script can name it
            await self._client.unlink(self._keys.job("").encode() + name)
            for schedule in self._schedules:
                await self._client.zrem(schedule, name)

    async def _count(self) -> None:
        # What is no counter any more must not keep the jobs waiting that were claimed with this one.
        with suppress(StoreRefuses):
            await self._client.hincrby(self._keys.counters(), "refused_jobs", 1)

    def _tell(self, job: Claimed, what: str, wait_s: float, text: str | bytes) -> asyncio.Future[Outcome]:
        return self._batcher.add(_word(what, job, wait_ms=_ms(wait_s), text=text))

    async def _say_again(self, words: Sequence[_Word]) -> list[Outcome]:
        # Said twice is harmless: the second time the job is gone, or the same wait begins a little later.
        return await until_redis_is_back(lambda: self._say(words))

    async def _say(self, words: Sequence[_Word]) -> list[Outcome]:
        outcomes: list[int] = await self._report(args=[self._prefixes, *(part for word in words for part in word)])
        return [Outcome(outcome) for outcome in outcomes]


def _word(what: str, job: Claimed, *, wait_ms: int = 0, text: str | bytes = "") -> _Word:
    call = job.record.call
    said = {
        "what": what,
        "call": call.call_id,
        "fence": job.fence,
        "wait_ms": wait_ms,
        "tool": call.tool,
        "reply_to": call.reply_to,
        "name": name_of(job.record),
        "deadline_ms": _ms(call.deadline_unix_s),
        "ends_ms": ends_unix_ms(call.deadline_unix_s),
    }
    return _Word(orjson.dumps(said), text)


def _first_wait_ms(job: JobRecord) -> int:
    """Without a poll function a worker has nothing to do before the deadline, unless it is asked to cancel."""
    until_deadline_s = job.call.deadline_unix_s - job.submitted_unix_s
    return _ms(job.poll_after_s if job.polled else max(0.0, until_deadline_s))


def _ms(seconds: float) -> int:
    # Upwards: a job that comes up at its deadline must find it passed, or it would be asked about once more.
    return math.ceil(seconds * 1000)


def _attempt(job: JobRecord, now_unix_s: float) -> Attempt:
    began_unix_s = job.submitted_unix_s
    # By another worker's clock, or another machine's.
    ended_unix_s = max(began_unix_s, round(now_unix_s, 4))
    return Attempt(worker="", number=job.attempt, began_unix_s=began_unix_s, ended_unix_s=ended_unix_s)
