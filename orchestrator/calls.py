"""A batch of requested calls to a batch of results: dispatched at once, gathered by call id, none lost for another.

The same column serves a run's turn and a caller who brings a loop of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.builtin import BUILT_IN, BuiltIn
from orchestrator.dispatch import Dispatcher, Outgoing
from orchestrator.events import CallEnded, CallProgressed, CallStarted, CallSubmitted, Event
from orchestrator.gather import Barrier, Gatherer
from orchestrator.handles import Handles
from orchestrator.refusals import unknown_tool
from orchestrator.run import CallRecord
from toolfleet.calls import Failed, Progress, Returned, Submitted, ToolCall, ToolResult
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of calls shares."""

    run_id: str
    offered: Mapping[str, ToolSpec]
    emit: Emit | None = None
    """None: nobody looks, and no event is made."""
    slow: Literal["wait", "handle"] = "wait"
    context: Mapping[str, Any] = field(default_factory=dict)
    deadline_unix_s: float | None = None
    priority: Priority = Priority.NORMAL

    def tell_start(self, call: ToolCall, spec: ToolSpec) -> None:
        """A call is on its way."""
        if self.emit:
            self.emit(
                CallStarted(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=call.arguments,
                    long_running=spec.long_running,
                )
            )

    def tell_progress(self, call: ToolCall, progress: Progress) -> None:
        """A call has come further."""
        if self.emit:
            self.emit(
                CallProgressed(
                    run_id=self.run_id,
                    call_id=call.call_id,
                    tool=call.tool,
                    fraction=progress.fraction,
                    message=progress.message,
                )
            )

    def tell_end(self, call: ToolCall, result: ToolResult) -> None:
        """A call has its result."""
        if self.emit:
            self.emit(CallEnded(run_id=self.run_id, call_id=call.call_id, tool=call.tool, result=result))


@dataclass(frozen=True, slots=True)
class Gathered:
    """Results by call id, and the late results of earlier calls that the model fetched in this batch."""

    results: dict[str, ToolResult]
    fetched: dict[str, ToolResult]


class Calls:
    """Sends calls and waits for their results."""

    def __init__(
        self,
        settings: Settings,
        orchestrator_id: str,
        *,
        dispatcher: Dispatcher,
        gatherer: Gatherer,
        handles: Handles,
        built_in: BuiltIn,
    ) -> None:
        self._settings = settings
        self._orchestrator_id = orchestrator_id
        self._dispatcher = dispatcher
        self._gatherer = gatherer
        self._handles = handles
        self._built_in = built_in

    async def perform(self, calls: Sequence[CallRecord], batch: Batch) -> Gathered:
        """Every call to its result. Raises BrokerUnreachable when calls could not be sent."""
        fetched: dict[str, ToolResult] = {}
        for_workers = [call for call in calls if call.tool in batch.offered]
        ours = [call for call in calls if call.tool not in batch.offered]
        barrier = Barrier(batch.tell_end)
        submitted = await self._send(for_workers, batch, barrier)
        answers = await asyncio.gather(*(self._answer(call, batch, fetched) for call in ours))
        results = await barrier.wait() | submitted
        return Gathered(results | dict(zip((call.call_id for call in ours), answers, strict=True)), fetched)

    def recorded(self, results: Mapping[str, ToolResult]) -> None:
        """These results are written down or handed over: Redis may drop them. Those of slow calls are still to come."""
        self._gatherer.forget(call_id for call_id, result in results.items() if not isinstance(result, Submitted))

    async def _send(self, calls: Sequence[CallRecord], batch: Batch, barrier: Barrier) -> dict[str, ToolResult]:
        """Dispatch calls; returns the answers of those that are slow and need not be waited for."""
        outgoing: list[Outgoing] = []
        submitted: dict[str, ToolResult] = {}
        for record in calls:
            spec = batch.offered[record.tool]
            call = self._tool_call(record, spec, batch)
            awaited = barrier
            if spec.long_running:
                handle = await self._submit(call, batch)
                if batch.slow == "handle":
                    submitted[call.call_id] = handle
                    awaited = Barrier(batch.tell_end)
            if self._gatherer.is_full:
                # What is ready must go before we wait for room, or nothing would ever make room.
                self._dispatcher.send(outgoing)
                outgoing = []
            # Expect before dispatch: a result that came first would find nobody waiting.
            await self._gatherer.expect(call, awaited, batch.tell_progress)
            outgoing.append(Outgoing(call, spec, batch.priority))
            batch.tell_start(call, spec)
        self._dispatcher.send(outgoing)
        return submitted

    async def _submit(self, call: ToolCall, batch: Batch) -> Submitted:
        submitted = await self._handles.submit(call)
        if batch.emit:
            batch.emit(
                CallSubmitted(run_id=batch.run_id, call_id=call.call_id, tool=call.tool, handle=submitted.handle)
            )
        return submitted

    async def _answer(
        self, call: CallRecord, batch: Batch, fetched: dict[str, ToolResult]
    ) -> Returned | Failed | Submitted:
        """The answer to a call that no worker is asked."""
        if batch.slow == "handle" and call.tool in BUILT_IN:
            return await self._built_in.answer(call.tool, call.arguments, batch.run_id, fetched.__setitem__)
        return unknown_tool(call.tool, batch.offered)

    def _tool_call(self, record: CallRecord, spec: ToolSpec, batch: Batch) -> ToolCall:
        settings = self._settings
        timeout_s = settings.long_call_timeout_s if spec.long_running else settings.call_timeout_s
        deadline_unix_s = time.time() + max(timeout_s, spec.timeout_s or 0)
        return ToolCall(
            call_id=record.call_id,
            run_id=batch.run_id,
            tool=record.tool,
            arguments=record.arguments,
            deadline_unix_s=min(deadline_unix_s, batch.deadline_unix_s or deadline_unix_s),
            reply_to=self._orchestrator_id,
            context=dict(batch.context),
        )
