"""One call that was polled: its tool runs as on any worker, and what comes of it is a record or that it goes back.

Knows tools and nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.calls import Failed, FailureKind, Returned, Submitted, ToolCall
from toolfleet.context import Context
from toolfleet.errors import RetryAfter
from toolfleet.interceptors import ToolInterceptor
from toolfleet.log_subject import log_about_call
from toolfleet.metrics.of_calls import CALLS
from toolfleet.tool import Tool
from toolfleet.work import WorkCall
from toolfleet.workers.over.reports import Reports
from toolfleet.workers.over.tracing import Spans
from toolfleet.workers.perform.endings import Interruption
from toolfleet.workers.tool.execute import compensate, execute
from toolfleet.workers.tool.failures import cancelled_unstarted, doubt, in_doubt, limited
from toolfleet.workers.tool.threads import ToolThreads
from toolfleet.workers.tool.time_limit import has_begun


class GoesBack(NamedTuple):
    """The call is for another worker, or for later. It has had no effect."""

    after_s: float = 0.0


class Runner:
    """Runs the calls of one event loop."""

    def __init__(
        self,
        tools: Mapping[str, Tool[..., Any]],
        threads: ToolThreads,
        *,
        limits: ArgumentLimits,
        interceptors: tuple[ToolInterceptor, ...],
        reports: Reports,
        spans: Spans,
    ) -> None:
        self._tools = tools
        self._threads = threads
        self._limits = limits
        self._interceptors = interceptors
        self._reports = reports
        self._spans = spans

    async def run(self, told: WorkCall, came_unix_s: float) -> Returned | Failed | GoesBack:
        """Run one call, of which this worker heard then. A cancellation says why, with an `Interruption`."""
        call, tool = _call_of(told, came_unix_s), self._tools[told.tool]
        log_about_call(call.run_id, call.call_id, call.traceparent)  # each call has a task of its own
        context = Context.of(
            call,
            attempt=told.attempt,
            report=self._reports.of(call.call_id),
            keep=self._reports.keep,
            last_checkpoint=told.checkpoint,
        )
        if call.undoes is None:
            context.spendings = []
        if tool.spec.long_running:
            context.progress(0.0)
        try:
            with self._spans.around(call, tool.spec, told.queue or tool.spec.queue, told.attempt) as ended:
                result = await self._executed(call, tool, context)
                ended(result)
        except RetryAfter as error:
            if time.time() + error.seconds >= call.deadline_unix_s:
                return limited(call.tool, error, ", which is after the call's deadline")
            return GoesBack(error.seconds)
        except asyncio.CancelledError as interruption:
            outcome = _after_interruption(call, tool, interruption, has_begun=has_begun(context))
            return outcome if isinstance(outcome, GoesBack) else outcome.model_copy(update={"spent": context.spent})
        if isinstance(result, Submitted):
            message = f"{call.tool} left its call to a job elsewhere, which a worker over HTTPS cannot: it is in doubt"
            return Failed(kind=FailureKind.IN_DOUBT, message=message)
        return result

    async def _executed(self, call: ToolCall, tool: Tool[..., Any], context: Context) -> Returned | Failed | Submitted:
        began_s = time.perf_counter()
        try:
            if call.undoes is not None:
                return await compensate(call, tool, context, threads=self._threads)
            return await execute(
                call, tool, context, threads=self._threads, limits=self._limits, interceptors=self._interceptors
            )
        finally:
            CALLS.ran(tool.spec.name, time.perf_counter() - began_s)


def _call_of(told: WorkCall, came_unix_s: float) -> ToolCall:
    """Return the call as tools know it, with its deadline by this machine's clock."""
    return ToolCall(
        call_id=told.call_id,
        run_id=told.run_id,
        tool=told.tool,
        arguments=told.arguments,
        attempt=told.attempt,
        deadline_unix_s=came_unix_s + told.deadline_in_s,
        reply_to="",
        context=told.context,
        state=told.state,
        tenant=told.tenant,
        subject=told.subject,
        traceparent=told.traceparent,
        tracestate=told.tracestate,
        baggage=told.baggage,
        undoes=told.undoes,
    )


def _after_interruption(
    call: ToolCall, tool: Tool[..., Any], interruption: asyncio.CancelledError, *, has_begun: bool
) -> Failed | GoesBack:
    if not has_begun:
        return GoesBack() if Interruption.SHUTDOWN in interruption.args else cancelled_unstarted(call.tool)
    effect = tool.spec.effect
    if Interruption.SHUTDOWN not in interruption.args:
        return Failed(kind=FailureKind.CANCELLED, message=f"{call.tool} was cancelled while it ran.{doubt(effect)}")
    return GoesBack() if effect.repeatable else in_doubt(call.tool)
