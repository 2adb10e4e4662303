"""Gathers what Redis tells of calls: one pipeline for many of them, and a search in their queues where that is needed.

Reads only, and decides nothing: what the facts mean is `call_state`'s to say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

import redis.asyncio
from pydantic import Field, ValidationError

from toolfleet import jobs
from toolfleet.calls import Failed, FailureKind, Progress, Record, Returned, Submitted, run_of
from toolfleet.errors import Refused
from toolfleet.jobs import JobStatus
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.gather import never_came_back
from toolfleet.orchestrator.fleet.queue_position import QueuePosition, QueuePositions
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_state import CallFacts, CallState, call_state
from toolfleet.settings import Settings
from toolfleet.skipped import open_or_skip, skip
from toolfleet.streams import Priority
from toolfleet.wire import Seal

_STATES: Final = {state.value.encode(): state for state in State}

EXPIRED_AFTER_S: Final = 5.0
"""How long after its deadline a call without a result is given up: its worker still has to say how it ended."""

LOOKED_FOR_MAX: Final = 200
"""How many of the calls that are read at once are looked for in their queues, which takes a search for each."""

OWN_QUEUE: Final = "orchestrator"
"""What tools name as their queue that no worker is asked: the built-in ones, and agents, whose call is a run."""


class SingleCall(Record):
    """What was asked for by a call that is part of no run, for the interceptors that its result is shown to."""

    arguments: str = Field(repr=False)
    """With secrets masked."""
    context: dict[str, Any] = Field(repr=False)


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
    subject: str = Field(default="", exclude_if=lambda subject: not subject)
    """Who has asked for it."""
    priority: int = int(Priority.NORMAL)
    asked: SingleCall | None = Field(default=None, exclude_if=lambda asked: asked is None)
    """None where no interceptor was there when the call was made, and for a call of a run."""

    def sealed(self, seal: Seal, key: str) -> bytes:
        """The record as it is stored under this key: it says whose call it is, so nobody else may write it."""
        return seal.close_kept(self.model_dump_json().encode(), key)

    @classmethod
    def opened(cls, seal: Seal, sealed: bytes | None, key: str) -> HandleRecord | None:
        """The record that is stored under this key; None where there is none, or none of ours."""
        if sealed is None:
            return None
        try:
            return cls.model_validate_json(seal.open_kept(sealed, key), extra="ignore")
        except (Refused, ValidationError) as error:
            skip("handle", error)
            return None


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that somebody asks about, with what is known of it before Redis is asked."""

    call_id: str
    tool: str = ""
    result: Returned | Failed | None = None
    """Its end as its run has recorded it."""
    is_left_open: bool = False
    """Its run ended before it did, and waits for it no more, even if the run is resumed."""
    was_sent: bool = False
    awaits_approval: bool = False
    deadline_unix_s: float | None = None
    handle: str = ""
    priority: Priority = Priority.NORMAL
    record: HandleRecord | None = None
    """What its handle stands for, if that was read already."""

    @classmethod
    def of(cls, call: CallRecord, *, priority: Priority = Priority.NORMAL) -> AskedCall:
        """A call as the history of its run has it, which was begun with this priority."""
        return cls(
            call_id=call.call_id,
            tool=call.tool,
            result=recorded_result(call),
            is_left_open=call.is_left_open,
            was_sent=call.deadline_unix_s is not None,
            awaits_approval=call.awaits_approval and call.approval is None,
            deadline_unix_s=call.deadline_unix_s,
            handle=handle_of(call),
            priority=priority,
        )

    @classmethod
    def of_handle(cls, handle: str, record: HandleRecord, *, is_left_open: bool = False) -> AskedCall:
        """A call as its handle's record has it, and as its run has left it."""
        return cls(
            call_id=record.call_id,
            tool=record.tool,
            is_left_open=is_left_open,
            was_sent=True,
            deadline_unix_s=record.deadline_unix_s,
            handle=handle,
            record=record,
        )


def handle_of(call: CallRecord) -> str:
    """The handle that the model or a caller has of a call; "" for one that has none."""
    return call.result.handle if isinstance(call.result, Submitted) else call.handle


def recorded_result(call: CallRecord) -> Returned | Failed | None:
    """How a call ended, as its run has recorded it: by then its result may be gone from Redis."""
    if call.is_left_open:
        return None
    known = call.late_result or call.result
    return known if isinstance(known, Returned | Failed) else None


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call as it was found: the facts that decide its state, and what else there is to tell."""

    tool: str
    facts: CallFacts
    progress: Progress | None = None
    job: JobStatus | None = None

    @property
    def state(self) -> CallState:
        """The state of the call."""
        return call_state(self.facts)

    @property
    def queue_position(self) -> QueuePosition | None:
        """Where its message is, if it was found."""
        return self.facts.queue_position

    @property
    def result(self) -> Returned | Failed | None:
        """How it ended; for one that ended without a result, what there is to say instead. None before its end."""
        match self.facts.result, self.state:
            case None, CallState.EXPIRED:
                return never_came_back(self.tool or "the call")
            case None, CallState.CANCELLED:
                message = f"{self.tool or 'the call'} was cancelled with its run; it may or may not have begun."
                return Failed(kind=FailureKind.CANCELLED, message=message)
            case result, _:
                return result


class _Seen(NamedTuple):
    """What one round trip to Redis brought about one call, still sealed."""

    result: bytes | None
    progress: bytes | None
    has_job: int
    child_run: bytes | None
    run: bytes | None
    record: bytes | None

    @property
    def tells_more_than_a_queue(self) -> bool:
        return bool(self.result or self.has_job or self.child_run)


class CallReader:
    """Reads the facts about calls, whoever works on them."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._catalog = Catalog(client, settings)
        self._positions = QueuePositions(client, settings)

    async def read(self, calls: Sequence[AskedCall]) -> dict[str, FoundCall]:
        """The calls as they are found now, by id; what nobody has sealed is not there. Raises StoreUnreachable."""
        found = {
            call.call_id: FoundCall(call.tool, CallFacts(result=call.result, was_sent=call.was_sent))
            for call in calls
            if call.result is not None
        }
        open_calls = [call for call in calls if call.result is None]
        if not open_calls:
            return found
        seen = await self._seen(open_calls)
        positions = await self._looked_for(open_calls, seen)
        for call in open_calls:
            found[call.call_id] = await self._found(call, seen[call.call_id], positions.get(call.call_id))
        return found | await self._ended_meanwhile(found)

    async def _seen(self, calls: Sequence[AskedCall]) -> dict[str, _Seen]:
        keys = self._settings.keys
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            pipeline.get(keys.result(call.call_id))
            pipeline.get(keys.progress(call.call_id))
            pipeline.exists(keys.job(call.call_id))
            pipeline.hget(keys.head(call.call_id), "state")
            pipeline.hget(keys.head(run_of(call.call_id)), "state")
            pipeline.get(keys.handle(call.handle))
        replies: list[Any] = await pipeline.execute()
        width = len(_Seen._fields)
        return {call.call_id: _Seen(*replies[width * at : width * (at + 1)]) for at, call in enumerate(calls)}

    async def _looked_for(self, calls: Sequence[AskedCall], seen: Mapping[str, _Seen]) -> dict[str, QueuePosition]:
        """The positions of those calls that only their queue can tell of."""
        wanted = [call for call in calls if not seen[call.call_id].tells_more_than_a_queue][:LOOKED_FOR_MAX]
        queues = {name: spec.queue for name, spec in (await self._catalog.offered()).items()} if wanted else {}
        places = {}
        for call in wanted:
            text = seen[call.call_id].record
            record = call.record or HandleRecord.opened(self._seal, text, self._settings.keys.handle(call.handle))
            # Whoever sent the call wrote down where to; without a handle, its tool is served there by now.
            queue = (record.queue if record else "") or queues.get(call.tool, "")
            if not queue or queue == OWN_QUEUE:
                continue
            priority = record.priority if record else int(call.priority)
            places[call.call_id] = queue, priority
        return await self._positions.of_all(places)

    async def _found(self, call: AskedCall, seen: _Seen, position: QueuePosition | None) -> FoundCall:
        call_id = call.call_id
        result = open_or_skip("result", self._seal.open_result, seen.result, call_id)
        progress = open_or_skip("progress", self._seal.open_progress, seen.progress, call_id)
        job = await self._job(call_id) if seen.has_job else None
        ends_unix_s = call.deadline_unix_s
        facts = CallFacts(
            result=result if isinstance(result, Returned | Failed) else None,
            has_job=job is not None or isinstance(result, Submitted),
            queue_position=position,
            has_progress=progress is not None,
            child_run=_state(seen.child_run),
            awaits_approval=call.awaits_approval,
            was_sent=call.was_sent,
            deadline_passed=ends_unix_s is not None and time.time() > ends_unix_s + EXPIRED_AFTER_S,
            run=State.CANCELLED if call.is_left_open else _state(seen.run),
        )
        return FoundCall(call.tool, facts, progress, job)

    async def _job(self, call_id: str) -> JobStatus | None:
        try:
            return await jobs.status(self._client, self._settings, self._seal, call_id)
        except Refused as refusal:
            skip("job", str(refusal), call_id=call_id)
            return None

    async def _ended_meanwhile(self, found: Mapping[str, FoundCall]) -> dict[str, FoundCall]:
        """Those calls whose result was stored while they were looked for, so that no message of them was found."""
        without = [
            call_id
            for call_id, each in found.items()
            if each.facts.result is None and each.queue_position is None and each.facts.was_sent
        ]
        if not without:
            return {}
        sealed = await self._client.mget([self._settings.keys.result(call_id) for call_id in without])
        ended = {}
        for call_id, text in zip(without, cast("list[bytes | None]", sealed), strict=True):
            result = open_or_skip("result", self._seal.open_result, text, call_id)
            if isinstance(result, Returned | Failed):
                ended[call_id] = replace(found[call_id], facts=replace(found[call_id].facts, result=result))
        return ended


def _state(text: bytes | None) -> State | None:
    """Return the state that a head names; None where it names none that there is."""
    return _STATES.get(text or b"")
