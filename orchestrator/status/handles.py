"""Handles: tickets for calls that outlive their turn, and truthful answers about them.

A handle's record is written before the handle is given out, so an unknown handle is never one that is merely young.
What the run itself remembers of its tasks (`Tasks`) outlives that record.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import orjson
import redis.asyncio

from toolfleet import jobs
from toolfleet.calls import Failed, FailureKind, Progress, Record, Returned, Submitted
from toolfleet.keys import RESULT_TTL_S
from toolfleet.orchestrator.fleet.gather import Gatherer, never_came_back
from toolfleet.orchestrator.fleet.queue_position import Place, Whereabouts
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

POLL_AFTER_S: Final = 5.0
"""How soon to ask again about a young call."""

POLL_AFTER_MAX_S: Final = 60.0

ASK_AGAIN_PART: Final = 0.25
"""What has taken an hour will not be done in five seconds: the wait grows with this part of the call's age."""

LOOK_AFTER_S: Final = 0.25
LOOK_EVERY_S: Final = 5.0
"""How soon the store is asked about a call whose push may have been lost, or have gone to another orchestrator: after
the first, then after twice as long each time, up to the second."""

EXPIRED_AFTER_S: Final = 5.0
"""How long after its deadline a call without a result is given up: its worker still has to say how it ended."""

OWN_QUEUE: Final = "orchestrator"
"""What tools name as their queue that no worker is asked: the built-in ones, and agents, whose call is a run."""

Tasks = Mapping[str, CallRecord]
"""The calls of one run that became tasks, by handle, as its history knows them."""

NO_TASKS: Final[Tasks] = {}


class HandleRecord(Record):
    """What a handle stands for."""

    call_id: str
    run_id: str
    tool: str
    deadline_unix_s: float
    submitted_unix_s: float
    queue: str = ""
    """Where its message went; empty: not known any more."""
    principal: str = ""
    """The tenant whose call it is; no other one may ask."""
    priority: int = int(Priority.NORMAL)


class Status(Record):
    """A truthful answer about a handle."""

    status: Literal[
        "queued",
        "running",
        "submitted",
        "succeeded",
        "failed",
        "cancelled",
        "expired",
        "in_doubt",
        "unknown handle",
    ]
    task_id: str
    call_id: str = ""
    tool: str = ""
    age_s: float = 0.0
    attempt: int = 0
    """How often a worker was given the call; for a job elsewhere, how often it was asked about."""
    queue_position: int | None = None
    """How many calls are taken before it."""
    progress: Progress | None = None
    result: Returned | Failed | None = None
    message: str = ""
    poll_after_s: float | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether asking again would change nothing."""
        return self.status not in {"queued", "running", "submitted"}

    def shown(self) -> dict[str, Any]:
        """What a model reads; a finished task's result is its tool's own content."""
        shown = self.model_dump(mode="json", exclude={"result", "call_id"}, exclude_none=True, exclude_defaults=True)
        shown["status"] = self.status
        if isinstance(self.result, Returned):
            shown["result"] = _as_value(self.result.content)
        elif isinstance(self.result, Failed):
            shown["error"] = self.result.message
        return shown

    def for_model(self) -> str:
        """The answer as JSON."""
        return orjson.dumps(self.shown()).decode()


class Handles:
    """Makes handles and answers about them."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, gatherer: Gatherer) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._gatherer = gatherer
        self._whereabouts = Whereabouts(client, settings)

    async def submit(
        self,
        call: CallRecord,
        run_id: str,
        *,
        queue: str,
        priority: Priority = Priority.NORMAL,
        principal: str = "",
    ) -> Submitted:
        """A handle for a call that goes on by itself: the one it has, or a new one, its record written first."""
        handle = call.handle or secrets.token_urlsafe(16)
        if not call.handle:
            deadline_unix_s = call.deadline_unix_s or time.time()
            record = HandleRecord(
                call_id=call.call_id,
                run_id=run_id,
                tool=call.tool,
                deadline_unix_s=deadline_unix_s,
                submitted_unix_s=time.time(),
                queue=queue,
                principal=principal,
                priority=int(priority),
            )
            await self._client.set(
                self._settings.keys.handle(handle), record.model_dump_json(), ex=_ttl_s(deadline_unix_s)
            )
        return Submitted(
            handle=handle,
            poll_after_s=POLL_AFTER_S,
            message=f"{call.tool} was submitted and goes on by itself. Ask for its result with this task_id when "
            "you need it.",
        )

    async def record(self, handle: str) -> HandleRecord | None:
        """What a handle stands for, whoever asks; None once its record has ended. Raises StoreUnreachable."""
        text = await self._client.get(self._settings.keys.handle(handle))
        return HandleRecord.model_validate_json(text) if text else None

    async def find(self, handle: str, run_id: str, tasks: Tasks = NO_TASKS) -> HandleRecord | None:
        """The record of a run's own handle; None for any other, so that a stranger learns nothing.

        One that has ended is made anew from what the run remembers.
        """
        record = await self.record(handle)
        if record is not None:
            return record if record.run_id == run_id else None
        call = tasks.get(handle)
        if call is None:
            return None
        ends_unix_s = call.deadline_unix_s or 0.0
        return HandleRecord(
            call_id=call.call_id, run_id=run_id, tool=call.tool, deadline_unix_s=ends_unix_s, submitted_unix_s=0.0
        )

    async def status(self, handle: str, run_id: str, *, wait_s: float = 0.0, tasks: Tasks = NO_TASKS) -> Status:
        """How a handle's call stands, after waiting up to `wait_s` for its result."""
        if (ended := _remembered(handle, tasks)) is not None:
            return ended
        record = await self.find(handle, run_id, tasks)
        if record is None:
            return Status(
                status="unknown handle", task_id=handle, message="this run has no task with this id; check the task_id"
            )
        result = await self._result(record, wait_s)
        if isinstance(result, Returned | Failed):
            return _ended(handle, record.call_id, record.tool, result, age_s=_age_s(record))
        return await self._open(handle, record)

    async def has_ended(self, call_id: str) -> bool:
        """Whether the call's result is stored: one look, however busy the workers are."""
        return await self._gatherer.result_of(call_id, wait_s=0.0) is not None

    async def wait(
        self, handles: Sequence[str], run_id: str, *, wait_s: float, until_all: bool, tasks: Tasks = NO_TASKS
    ) -> None:
        """Return when any (or all) of the run's own tasks among these has its result, or the time is over."""
        own = [handle for handle in handles if _remembered(handle, tasks) is None]
        found = [record for handle in own if (record := await self.find(handle, run_id, tasks))]
        if not found or (len(own) < len(handles) and not until_all):
            return
        waiting = [asyncio.ensure_future(self._result(record, wait_s)) for record in found]
        try:
            await asyncio.wait(
                waiting, return_when=asyncio.ALL_COMPLETED if until_all else asyncio.FIRST_COMPLETED, timeout=wait_s
            )
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _open(self, handle: str, record: HandleRecord) -> Status:
        """How a call without a result stands."""
        call_id, age_s = record.call_id, _age_s(record)
        status = Status(
            status="queued",
            task_id=handle,
            call_id=call_id,
            tool=record.tool,
            age_s=age_s,
            progress=await self._progress(call_id),
            poll_after_s=_poll_after_s(age_s),
        )
        job = await jobs.status(self._client, self._settings, self._seal, call_id)
        if job is not None:
            asked_next_s = 0.0 if job.next_poll_s is None else job.next_poll_s
            poll_after_s = round(max(_poll_after_s(age_s), asked_next_s), 1)
            changes: dict[str, Any] = {"status": "submitted", "attempt": job.state.polls, "poll_after_s": poll_after_s}
            return status.model_copy(update=changes)
        if record.queue == OWN_QUEUE:
            return status.model_copy(update={"status": "running"})
        place = await self._whereabouts.of(call_id, record.queue, record.priority) if record.queue else None
        if place is None:
            # It may have ended while we looked.
            result = await self._gatherer.result_of(call_id, wait_s=0.0)
            if isinstance(result, Returned | Failed):
                return _ended(handle, call_id, record.tool, result, age_s=age_s)
            return status.model_copy(update={"status": "running" if status.progress else "queued"})
        return status.model_copy(update=_told_of(place))

    async def _result(self, record: HandleRecord, wait_s: float) -> Returned | Failed | Submitted | None:
        give_up_at, look_after_s = time.monotonic() + wait_s, LOOK_AFTER_S
        while True:
            left_s = max(0.0, give_up_at - time.monotonic())
            result = await self._gatherer.result_of(record.call_id, wait_s=min(left_s, look_after_s))
            look_after_s = min(2 * look_after_s, LOOK_EVERY_S)
            if result is None and time.time() > record.deadline_unix_s + EXPIRED_AFTER_S:
                return never_came_back(record.tool)
            if result is not None or left_s <= 0:
                return result

    async def _progress(self, call_id: str) -> Progress | None:
        sealed = cast("bytes | None", await self._client.get(self._settings.keys.progress(call_id)))
        return self._seal.open_progress(sealed, call_id) if sealed else None


def _remembered(handle: str, tasks: Tasks) -> Status | None:
    """The end of a task as the run's history has it: by then its result may be gone from the store."""
    call = tasks.get(handle)
    if call is None:
        return None
    for result in (call.late_result, call.result):
        if isinstance(result, Returned | Failed):
            return _ended(handle, call.call_id, call.tool, result, age_s=0.0)
    return None


def _ended(handle: str, call_id: str, tool: str, result: Returned | Failed, *, age_s: float) -> Status:
    return Status(status=_word(result), task_id=handle, call_id=call_id, tool=tool, age_s=age_s, result=result)


def _told_of(place: Place) -> dict[str, Any]:
    told: dict[str, Any] = {"status": "running" if place.is_with_worker else "queued", "attempt": place.attempt}
    if place.before is not None:
        told["queue_position"] = place.before
    if place.is_at_least:
        told["message"] = f"more than {place.before} calls are before it in the queue"
    return told


def _age_s(record: HandleRecord) -> float:
    return round(time.time() - record.submitted_unix_s, 1) if record.submitted_unix_s else 0.0


def _poll_after_s(age_s: float) -> float:
    return round(min(POLL_AFTER_MAX_S, max(POLL_AFTER_S, age_s * ASK_AGAIN_PART)), 1)


def _ttl_s(deadline_unix_s: float) -> int:
    return max(1, int(deadline_unix_s - time.time())) + RESULT_TTL_S


_WORDS: Final[dict[FailureKind, Literal["cancelled", "expired", "in_doubt"]]] = {
    FailureKind.CANCELLED: "cancelled",
    FailureKind.EXPIRED: "expired",
    FailureKind.IN_DOUBT: "in_doubt",
}


def _word(result: Returned | Failed) -> Literal["succeeded", "failed", "cancelled", "expired", "in_doubt"]:
    return "succeeded" if isinstance(result, Returned) else _WORDS.get(result.kind, "failed")


def _as_value(content: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
