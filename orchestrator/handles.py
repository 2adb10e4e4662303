"""Handles: tickets for calls that outlive their turn, and truthful answers about them.

A handle's record is written before the handle is given out, so an unknown handle is never one that is merely young.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any, Final, cast

import orjson
import redis.asyncio

from orchestrator.gather import Gatherer
from orchestrator.history import CallRecord
from toolfleet.calls import Failed, FailureKind, Progress, Record, Returned, Submitted
from toolfleet.connections import translating
from toolfleet.keys import RESULT_TTL_S
from toolfleet.settings import Settings
from toolfleet.wire import Seal

POLL_AFTER_S: Final = 5.0

LOOK_EVERY_S: Final = 1.0
"""How often the store is asked about a call whose result another orchestrator will be told of."""

EXPIRED_AFTER_S: Final = 5.0
"""How long after its deadline a call without a result is given up: its worker still has to say how it ended."""


class HandleRecord(Record):
    """What a handle stands for."""

    call_id: str
    run_id: str
    tool: str
    deadline_unix_s: float
    submitted_unix_s: float


class Status(Record):
    """A truthful answer about a handle."""

    status: str
    task_id: str
    call_id: str = ""
    tool: str = ""
    age_s: float = 0.0
    progress: Progress | None = None
    result: Returned | Failed | None = None
    message: str = ""
    poll_after_s: float | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether asking again would change nothing."""
        return self.status not in {"queued", "running", "submitted"}

    def for_model(self) -> str:
        """The answer as JSON; a finished task's result is its tool's own content."""
        shown = self.model_dump(mode="json", exclude={"result", "call_id"}, exclude_none=True, exclude_defaults=True)
        shown["status"] = self.status
        if isinstance(self.result, Returned):
            shown["result"] = _as_value(self.result.content)
        elif isinstance(self.result, Failed):
            shown["error"] = self.result.message
        return orjson.dumps(shown).decode()


class Handles:
    """Makes handles and answers about them."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, gatherer: Gatherer) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._gatherer = gatherer

    async def submit(self, call: CallRecord, run_id: str) -> Submitted:
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
            )
            with translating(self._settings):
                await self._client.set(
                    self._settings.keys.handle(handle), record.model_dump_json(), ex=_ttl_s(deadline_unix_s)
                )
        return Submitted(
            handle=handle,
            poll_after_s=POLL_AFTER_S,
            message=f"{call.tool} was submitted and goes on by itself. Ask for its result with this task_id when "
            "you need it.",
        )

    async def find(self, handle: str, run_id: str) -> HandleRecord | None:
        """The record of a run's own handle; None for any other, so that a stranger learns nothing."""
        with translating(self._settings):
            text = await self._client.get(self._settings.keys.handle(handle))
        record = HandleRecord.model_validate_json(text) if text else None
        return record if record and record.run_id == run_id else None

    async def status(self, handle: str, run_id: str, *, wait_s: float = 0.0) -> Status:
        """How a handle's call stands, after waiting up to `wait_s` for its result."""
        record = await self.find(handle, run_id)
        if record is None:
            return Status(
                status="unknown handle", task_id=handle, message="this run has no task with this id; check the task_id"
            )
        result = await self._result(record, wait_s)
        age_s = round(time.time() - record.submitted_unix_s, 1)
        if isinstance(result, Returned | Failed):
            return Status(
                status=_word(result),
                task_id=handle,
                call_id=record.call_id,
                tool=record.tool,
                age_s=age_s,
                result=result,
            )
        progress = await self._progress(record.call_id)
        return Status(
            status="running" if progress else "queued",
            task_id=handle,
            call_id=record.call_id,
            tool=record.tool,
            age_s=age_s,
            progress=progress,
            poll_after_s=POLL_AFTER_S,
        )

    async def _result(self, record: HandleRecord, wait_s: float) -> Returned | Failed | Submitted | None:
        give_up_at = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, give_up_at - time.monotonic())
            result = await self._gatherer.result_of(record.call_id, wait_s=left_s)
            if result is None and time.time() > record.deadline_unix_s + EXPIRED_AFTER_S:
                message = f"no result of {record.tool} arrived before its deadline; it may or may not have run."
                return Failed(kind=FailureKind.EXPIRED, message=message)
            left_s = give_up_at - time.monotonic()
            if result is not None or left_s <= 0:
                return result
            await asyncio.sleep(min(LOOK_EVERY_S, left_s))

    async def _progress(self, call_id: str) -> Progress | None:
        with translating(self._settings):
            sealed = cast("bytes | None", await self._client.get(self._settings.keys.progress(call_id)))
        return self._seal.open_progress(sealed, call_id) if sealed else None


def _ttl_s(deadline_unix_s: float) -> int:
    return max(1, int(deadline_unix_s - time.time())) + RESULT_TTL_S


def _word(result: Returned | Failed) -> str:
    if isinstance(result, Returned):
        return "succeeded"
    if result.kind in {FailureKind.CANCELLED, FailureKind.EXPIRED, FailureKind.IN_DOUBT}:
        return result.kind.value
    return "failed"


def _as_value(content: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
