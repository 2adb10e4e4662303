"""Handles: what a slow call's caller holds in its place, and truthful answers about them.

A handle's record is written before the handle is given out, so an unknown handle is never one that is merely young.
What the run itself remembers of its tasks (`Tasks`) outlives that record. How a call stands is decided in `call_state`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import orjson
import redis.asyncio
from pydantic import Field

from toolfleet.calls import Failed, Progress, Record, Returned, Submitted
from toolfleet.keys import RESULT_TTL_S
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.queue_position import QueuePosition
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.status.call_reader import (
    EXPIRED_AFTER_S,
    AskedCall,
    CallReader,
    FoundCall,
    HandleRecord,
    SingleCall,
    recorded_result,
)
from toolfleet.orchestrator.status.call_state import CallState, result_state
from toolfleet.orchestrator.status.holding import WaitsFor, waits_for
from toolfleet.orchestrator.store.run_store import RunStore
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

Tasks = Mapping[str, CallRecord]
"""The calls of one run that became tasks, by handle, as its history knows them."""

NO_TASKS: Final[Tasks] = {}


class Status(Record):
    """A truthful answer about a handle."""

    state: CallState
    """Unknown too for a handle that was never given out, or not to whoever asks."""
    task_id: str
    call_id: str = ""
    tool: str = ""
    age_s: float = 0.0
    external_id: str = Field(default="", exclude_if=lambda external_id: not external_id)
    """What another system calls the job that it has become; "" for one that a worker has."""
    attempt: int = 0
    """How often a worker was given the call; for a job elsewhere, how often it was asked about."""
    queue_position: int | None = None
    """How many calls are taken before it."""
    waits_for: WaitsFor | None = None
    """Why it waits in its queue; None for one that does not, and for models, which cannot help it."""
    progress: Progress | None = None
    result: Returned | Failed | None = None
    message: str = ""
    poll_after_s: float | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether asking again would change nothing: the call has ended, or there is no such handle."""
        return self.state.is_terminal or not self.call_id

    def ended_with(self, result: Returned | Failed) -> Status:
        """The same with another result, of which its state tells."""
        return self.model_copy(update={"result": result, "state": result_state(result)})

    def shown(self) -> dict[str, Any]:
        """What a model reads, with the state as its `status`; a finished task's result is its tool's own content."""
        shown = self.model_dump(
            mode="json", exclude={"state", "result", "call_id", "waits_for", "external_id"}, exclude_defaults=True
        )
        shown = {"status": self.state.value, **shown}
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
        self._calls = CallReader(client, settings, seal)
        self._store = RunStore(client, settings, seal)

    async def submit(
        self,
        call: CallRecord,
        run_id: str,
        *,
        queue: str,
        priority: Priority = Priority.NORMAL,
        principal: str = "",
        subject: str = "",
        asked: SingleCall | None = None,
    ) -> Submitted:
        """A handle for a call that goes on by itself: the one it has, or a new one, its record written first.

        `asked` is what interceptors will be shown of it, where no run remembers that.
        """
        handle = call.handle or self._settings.id_prefix + secrets.token_urlsafe(16)
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
                subject=subject,
                priority=int(priority),
                asked=asked,
            )
            key = self._settings.keys.handle(handle)
            await self._note(handle, key, record, _ttl_s(deadline_unix_s))
        return Submitted(
            handle=handle,
            poll_after_s=POLL_AFTER_S,
            message=f"{call.tool} was submitted and goes on by itself. Ask for its result with this task_id when "
            "you need it.",
        )

    async def _note(self, handle: str, key: str, record: HandleRecord, ttl_s: int) -> None:
        """Store a record, and in the list of its tenant's handles until when it is."""
        listed, now_ms = self._settings.keys.handles_of(record.principal), int(time.time() * 1000)
        pipeline = self._client.pipeline(transaction=False)
        pipeline.set(key, record.sealed(self._seal, key), ex=ttl_s)
        pipeline.zremrangebyscore(listed, "-inf", now_ms)
        pipeline.zadd(listed, {handle: now_ms + 1000 * ttl_s})
        pipeline.expire(listed, ttl_s, gt=True)
        pipeline.expire(listed, ttl_s, nx=True)
        await pipeline.execute()

    async def record(self, handle: str) -> HandleRecord | None:
        """What a handle stands for, whoever asks; None once its record has ended. Raises StoreUnreachable."""
        key = self._settings.keys.handle(handle)
        return HandleRecord.opened(self._seal, cast("bytes | None", await self._client.get(key)), key)

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

    async def status(self, handle: str, run_id: str, *, wait_s: float = 0.0, tasks: Tasks | None = None) -> Status:
        """How a handle's call stands, after waiting up to `wait_s` for its result.

        `tasks` are those that the run remembers; None to have them read from its history, if it is stored.
        """
        known = await self._recorded_tasks(run_id) if tasks is None else tasks
        asked = await self._asked(handle, run_id, known)
        if asked is None:
            message = "this run has no task with this id; check the task_id"
            return Status(state=CallState.UNKNOWN, task_id=handle, message=message)
        if asked.result is None and wait_s > 0:
            result = await self._awaited(asked, wait_s)
            known = await self._recorded_tasks(run_id) if tasks is None else tasks
            recorded = recorded_result(known[handle]) if handle in known else None
            asked = replace(asked, result=recorded or result)
        return status_of(handle, asked, (await self._calls.read([asked]))[asked.call_id])

    async def has_ended(self, call_id: str) -> bool:
        """Whether the call's result is stored: one look, however busy the workers are."""
        return await self._gatherer.result_of(call_id, wait_s=0.0) is not None

    async def wait(
        self, handles: Sequence[str], run_id: str, *, wait_s: float, until_all: bool, tasks: Tasks = NO_TASKS
    ) -> None:
        """Return when any (or all) of the run's own tasks among these has its result, or the time is over."""
        found = [asked for handle in handles if (asked := await self._asked(handle, run_id, tasks))]
        own = [asked for asked in found if asked.result is None]
        if not own or (len(own) < len(found) and not until_all):
            return
        waiting = [asyncio.ensure_future(self._awaited(asked, wait_s)) for asked in own]  # watched: awaited below
        try:
            await asyncio.wait(
                waiting, return_when=asyncio.ALL_COMPLETED if until_all else asyncio.FIRST_COMPLETED, timeout=wait_s
            )
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _asked(self, handle: str, run_id: str, tasks: Tasks) -> AskedCall | None:
        """The call of a run's own handle, with how it ended if the run has recorded that; None for any other handle."""
        call = tasks.get(handle)
        if call is not None and recorded_result(call) is not None:
            return AskedCall.of(call)
        record = await self.find(handle, run_id, tasks)
        is_left_open = call is not None and call.is_left_open
        return None if record is None else AskedCall.of_handle(handle, record, is_left_open=is_left_open)

    async def _recorded_tasks(self, run_id: str) -> Tasks:
        """The tasks that a run's history tells of; none for a call of no stored run."""
        try:
            return (await self._store.load(run_id)).run.tasks
        except RunNotFound:
            return NO_TASKS

    async def _awaited(self, asked: AskedCall, wait_s: float) -> Returned | Failed | None:
        """The call's result once it is there; None once the time is over, or the call has expired without one."""
        give_up_at, look_after_s = time.monotonic() + wait_s, LOOK_AFTER_S
        while True:
            left_s = max(0.0, give_up_at - time.monotonic())
            result = await self._gatherer.result_of(asked.call_id, wait_s=min(left_s, look_after_s))
            look_after_s = min(2 * look_after_s, LOOK_EVERY_S)
            if isinstance(result, Returned | Failed):
                return result
            if left_s <= 0 or time.time() > (asked.deadline_unix_s or 0.0) + EXPIRED_AFTER_S:
                return None


def status_of(handle: str, asked: AskedCall, found: FoundCall) -> Status:
    """What the handle's asker is told of the call as it was found."""
    state, age_s = found.state, _age_s(asked)
    status = Status(
        state=state, task_id=handle, call_id=asked.call_id, tool=asked.tool, age_s=age_s, result=found.result
    )
    if state.is_terminal:
        return status
    poll_after_s = _poll_after_s(age_s)
    changes: dict[str, Any] = {"progress": found.progress, "poll_after_s": poll_after_s}
    if found.job is not None:
        asked_next_s = found.job.next_poll_s or 0.0
        changes |= {
            "external_id": found.job.record.external_id,
            "attempt": found.job.state.polls,
            "poll_after_s": round(max(poll_after_s, asked_next_s), 1),
        }
    elif found.queue_position is not None:
        changes |= _told_of(found.queue_position)
    return status.model_copy(update=changes)


def _told_of(position: QueuePosition) -> dict[str, Any]:
    told: dict[str, Any] = {"attempt": position.attempt, "waits_for": waits_for(position)}
    if position.before is not None:
        told["queue_position"] = position.before
    if position.is_at_least:
        told["message"] = f"more than {position.before} calls are before it in the queue"
    return told


def _age_s(asked: AskedCall) -> float:
    """How long ago it was sent; never below zero, whatever the clock of its sender says."""
    submitted_unix_s = asked.record.submitted_unix_s if asked.record else 0.0
    return round(max(0.0, time.time() - submitted_unix_s), 1) if submitted_unix_s else 0.0


def _poll_after_s(age_s: float) -> float:
    return round(min(POLL_AFTER_MAX_S, max(POLL_AFTER_S, age_s * ASK_AGAIN_PART)), 1)


def _ttl_s(deadline_unix_s: float) -> int:
    return max(1, int(deadline_unix_s - time.time())) + RESULT_TTL_S


def _as_value(content: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
