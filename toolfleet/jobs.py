"""Jobs in other systems as both halves see them: what is stored, how they stand, and how they end from outside.

Owns the hash of a job and its fields. Must not know how jobs are asked about; that is the workers' matter.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from enum import IntEnum
from typing import Final, NamedTuple, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.calls import Failed, FailureKind, JobRecord, Record, Returned
from toolfleet.errors import CallerError
from toolfleet.fitting import Fitting
from toolfleet.forged import ALREADY, TrueResult, replace_forged
from toolfleet.keys import RESULT_TTL_S
from toolfleet.scripts import wire_script
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.spendings import add_up, spending_of
from toolfleet.wire import Seal

# The hash of a job:
#   record  the sealed JobRecord; never changes
#   state   JobState as JSON, by whoever asked last; absent until somebody has
#   fence   counts the claims: only the newest claimant's word counts
#   until   when the newest claim lapses (ms); absent while nobody has one
#   gates, place  limits that its call has a place of, and for which message; absent without
#   tool    whose schedule the call stands in, for where nobody can read the record


COMPLETE: Final = wire_script("complete_job")
REQUEST_CANCEL: Final = wire_script("request_cancel")


class StateNotTaken(CallerError):
    """Who calls back about a job wants to set what its run's tools share, and the tool does not say that it may."""


class JobState(Record):
    """What has come of asking so far. `wait_s` is the present wait between two polls."""

    wait_s: float
    polls: int = 0
    errors: int = 0
    """Polls that failed in a row."""
    cancels: int = 0
    """Attempts to cancel that failed."""


class JobStatus(NamedTuple):
    """How a job stands. `next_poll_s` is None where nobody polls: only `complete` can end it in time."""

    record: JobRecord
    state: JobState
    next_poll_s: float | None


class Completion(IntEnum):
    """What became of a result that another system sent."""

    UNKNOWN = 0
    """No such job, and no such result."""
    COMPLETED = 1
    """The result has ended the call."""
    ALREADY = 2
    """The call had a result; this one was dropped."""


class JobCancel(IntEnum):
    """What became of a cancel request."""

    UNKNOWN = 0
    """No such job: the call never submitted one, or it has ended."""
    ASKED = 1
    """A worker that knows the tool will tell the other system and end the call."""
    ENDED = 2
    """The tool has no functions for its jobs, so the call has ended here and nobody was told."""


async def status(client: redis.asyncio.Redis, settings: Settings, seal: Seal, call_id: str) -> JobStatus | None:
    """The job that a call waits for, None without one. Raises StoreUnreachable, and Refused for a forged record."""
    keys = settings.keys
    reply = client.hmget(keys.job(call_id), ["record", "state"])
    sealed, state = cast("list[bytes | None]", await cast("Awaitable[object]", reply))
    if sealed is None:
        return None
    record = seal.open_job(sealed, call_id)
    pipeline = client.pipeline(transaction=False)
    pipeline.zscore(keys.jobs(record.call.tool), call_id)
    pipeline.time()
    due_ms, (now_s, now_us) = await pipeline.execute()
    next_poll_s = None if due_ms is None or not record.polled else max(0.0, due_ms / 1000 - now_s - now_us / 1e6)
    return JobStatus(record, state_of(record, state), next_poll_s)


async def complete(
    client: redis.asyncio.Redis, settings: Settings, seal: Seal, call_id: str, result: Returned | Failed
) -> Completion:
    """End a job from outside, as its callback does. Of several results the first one counts.

    Raises StateNotTaken for one that sets shared state against the tool's word, StoreUnreachable, and Refused for a
    forged record.
    """
    keys = settings.keys
    job = await status(client, settings, seal, call_id)
    if job is not None and isinstance(result, Returned):
        result = await _taken(client, settings, job.record, result)
    # What it has cost is the tool's word, not the poster's.
    result = result.model_copy(update={"spent": None if job is None else job.record.spent})
    sealed = seal.close_result(result, call_id)
    script = client.register_script(COMPLETE)
    tool, reply_to = ("", "") if job is None else (job.record.call.tool, job.record.call.reply_to)
    outcome: int = await script(
        keys=[keys.job(call_id), keys.result(call_id), keys.job_ended(call_id)],
        args=[
            *(keys.result(""), keys.jobs(tool), keys.replies(reply_to), call_id, sealed),
            *(("", 0) if job is None else (name_of(job.record), ends_unix_ms(job.record.call.deadline_unix_s))),
        ],
    )
    if outcome == ALREADY and job is not None:
        outcome = await replace_forged(client, keys, seal, TrueResult(call_id, sealed, reply_to))
    if outcome == Completion.COMPLETED and job is not None and (spending := spending_of(tool, result)):
        await add_up(client, keys, [spending])
    return Completion(outcome)


async def _taken(client: redis.asyncio.Redis, settings: Settings, job: JobRecord, said: Returned) -> Returned:
    """What a poster said, as far as it is theirs to say, and as large as any result."""
    if said.state and not job.takes_state:
        raise StateNotTaken(
            f"the callback of {job.call.tool} may not set shared state ({', '.join(said.state)}): leave `state` out, "
            "or declare the tool with @tool(callback_sets_state=True)"
        )
    # An artifact, and which worker had the call, are the fleet's own words.
    media = tuple(part.model_copy(update={"artifact": None}) for part in said.media)
    own = said.model_copy(update={"artifact": None, "attempt": None, "media": media})
    return await Fitting(client, settings).fit_returned(own, job.call)


async def request_cancel(client: redis.asyncio.Redis, settings: Settings, seal: Seal, call_id: str) -> JobCancel:
    """Have a job cancelled. Returns at once; the call's result says how that went.

    Raises StoreUnreachable, and Refused for a forged record.
    """
    keys = settings.keys
    job = await status(client, settings, seal, call_id)
    if job is None:
        return JobCancel.UNKNOWN
    tool = job.record.call.tool
    if not job.record.polled and not job.record.cancellable:
        nobody_told = Failed(kind=FailureKind.CANCELLED, message=f"{tool} was cancelled. {goes_on(None)}")
        completion = await complete(client, settings, seal, call_id, nobody_told)
        return JobCancel.ENDED if completion is Completion.COMPLETED else JobCancel.UNKNOWN
    script = client.register_script(REQUEST_CANCEL)
    asked: int = await script(
        keys=[keys.job(call_id), keys.cancelled(call_id), keys.jobs(tool)],
        args=[call_id, ends_unix_ms(job.record.call.deadline_unix_s), seal.close_cancel(call_id)],
    )
    return JobCancel(asked)


def state_of(record: JobRecord, text: bytes | None) -> JobState:
    """The state of a job; without one nobody has asked yet."""
    if text:
        try:
            return JobState.model_validate_json(text, extra="ignore")
        except ValidationError as error:  # it is not sealed: nothing but waits and counts stands in it
            skip("job_state", error, call_id=record.call.call_id)
    return JobState(wait_s=record.poll_after_s)


def ends_unix_ms(deadline_unix_s: float) -> int:
    """When what is kept for a call with this deadline may be forgotten: workers may be away until then."""
    return int((deadline_unix_s + RESULT_TTL_S) * 1000)


def name_of(record: JobRecord) -> str:
    """Which job of its call this is: by it the mark that it has ended is known from that of an earlier one."""
    return f"{record.attempt} {math.floor(record.submitted_unix_s * 1000)}"


def goes_on(reason: str | None) -> str:
    """What to tell a model when the other system was not told to stop; `reason` is None without a way to tell it."""
    why = "it has no cancel function" if reason is None else f"telling it failed: {reason}"
    return f"The system that does the work was not told ({why}), so the work may go on there."
