"""The tool's part of a delivery: what an earlier attempt has left, the context, the run itself, and its interruption.

Says what came of it as a result or, when this worker must not settle the call, as an `Ending`. Settles nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.callbacks import callbacks
from toolfleet.calls import Effect, Failed, FailureKind, NotDone, Returned, Submitted, ToolCall
from toolfleet.context import Context
from toolfleet.errors import RetryAfter
from toolfleet.interceptors import ToolInterceptor
from toolfleet.log_subject import log_about_call
from toolfleet.metrics.of_calls import CALLS
from toolfleet.outages import until_redis_is_back
from toolfleet.points import Point, reached
from toolfleet.questions import Answerless
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.tracing.trace import is_sampled
from toolfleet.wire import Seal
from toolfleet.workers.delivery import cancel_requests
from toolfleet.workers.delivery.admit import Admitted, Unresolved, can_be_reconciled
from toolfleet.workers.delivery.call_logs import CallLogs
from toolfleet.workers.delivery.checkpoints import Checkpoints, open_checkpoint
from toolfleet.workers.delivery.claims import is_still_ours
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.pieces import Pieces
from toolfleet.workers.delivery.postpone import postpone
from toolfleet.workers.delivery.progress import ProgressReporter
from toolfleet.workers.delivery.questions import Attempt, Questions
from toolfleet.workers.perform.attempts import Attempts
from toolfleet.workers.perform.endings import Ending, Interruption
from toolfleet.workers.tool.execute import compensate, execute, limit_s, reconcile
from toolfleet.workers.tool.failures import cancelled_unstarted, doubt, in_doubt, limited
from toolfleet.workers.tool.threads import ToolThreads
from toolfleet.workers.tool.time_limit import TimeLimit, has_begun
from toolfleet.workers.tool.watch import Watch, watched

MAX_LEFTOVERS: Final = 500
"""Calls whose leftovers are asked for with one command."""


class ToolRuns:
    """Runs the tools of one event loop."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        seal: Seal,
        progress: ProgressReporter,
        checkpoints: Checkpoints,
        *,
        questions: Questions,
        pieces: Pieces,
        threads: ToolThreads | None,
        interceptors: tuple[ToolInterceptor, ...],
        attempts: Attempts | None = None,
        logs: CallLogs | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`attempts` trace what is run, `logs` keep what tools log, `watch` is told what could keep the loop to itself.

        None: nobody does.
        """
        self._client = client
        self._watch = watch
        self._attempts = attempts
        self._logs = logs
        self._keys = settings.keys
        self._limits = settings.argument_limits
        self._seal = seal
        self._address_of = callbacks(settings, seal)
        self._progress = progress
        self._checkpoints = checkpoints
        self._questions = questions
        self._pieces = pieces
        self._threads = threads
        self._interceptors = interceptors
        self._leftovers: Batcher[str, tuple[bytes | None, bytes | None]]
        self._leftovers = Batcher(self._read_all_leftovers, max_batch=MAX_LEFTOVERS)

    async def run(
        self, delivery: Delivery, decision: Admitted | Unresolved, tool: Tool[..., Any]
    ) -> Returned | Failed | Submitted | Ending:
        """Run an admitted call, or find out first what became of its earlier attempt."""
        if isinstance(decision, Unresolved):
            found = await self._resolve(delivery, decision.call, tool)
            if self._logs is not None:
                await self._logs.end(delivery, decision.call)
            return found
        return await self.start(delivery, decision.call, tool)

    async def _resolve(
        self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any]
    ) -> Returned | Failed | Submitted | Ending:
        """Return what became of the call's earlier attempt, or run the call if that attempt had no effect.

        The pending entry stays the fence. If this worker is lost too, the next one asks again.
        """
        self._log_about(delivery, call)
        _, checkpoint = await self._read_leftovers(call)
        context = Context.of(call, attempt=delivery.deliveries, last_checkpoint=checkpoint)
        try:
            with watched(self._watch, context.time_left_s):
                answer = await reconcile(call, tool, context, threads=self._threads)
        except asyncio.CancelledError as interruption:
            if Interruption.SHUTDOWN in interruption.args:
                return Ending.HANDED_BACK  # uncounted, but the earlier delivery still counts: the next one asks too
            return in_doubt(call.tool)
        if not isinstance(answer, NotDone):
            return answer
        if not await is_still_ours(self._client, delivery):
            # Frozen while it asked: another worker may have asked since, and begun.
            return Ending.TAKEN_OVER
        return await self.start(delivery, call, tool)

    async def start(
        self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any], *, clock: TimeLimit | None = None
    ) -> Returned | Failed | Submitted | Ending:
        """Run an admitted call. `clock` is as for `execute`."""
        self._log_about(delivery, call)  # each call has a task of its own
        ended = await self._start(delivery, call, tool, clock)
        if self._logs is not None and self._logs.is_any_waiting:
            await self._logs.end(delivery, call)
        return ended

    def _log_about(self, delivery: Delivery, call: ToolCall) -> None:
        log_about_call(call.run_id, call.call_id, call.traceparent, keeper=self._logs, delivery=delivery, call=call)

    async def _start(
        self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any], clock: TimeLimit | None
    ) -> Returned | Failed | Submitted | Ending:
        is_cancelled, checkpoint = delivery.cancelled, None
        if not delivery.is_new and not is_cancelled:
            is_cancelled, checkpoint = await self._read_leftovers(call)
        if is_cancelled:
            return cancelled_unstarted(tool.spec.name)
        reached(Point.CLAIMED, call.call_id)
        context = self._context(delivery, call, tool, checkpoint)
        if tool.spec.long_running:
            context.progress(0.0)  # whoever asks with its handle learns that it runs
        try:
            if self._attempts is None or not (call.traceparent and is_sampled(call.traceparent)):
                if self._attempts is not None:
                    self._be_below(self._attempts, call)
                result = await self._call(call, tool, context, clock)
            else:
                attempt = await self._attempts.at(delivery, call, tool.spec, call.traceparent)
                with attempt:
                    context.report = attempt.reporting(context.report)
                    result = await self._call(call, tool, context, clock)
                    attempt.ended(result)
        except RetryAfter as error:
            return await self._later(delivery, call, error)
        except Answerless as asks:
            is_ours = await self._questions.leave(delivery, call, asks.question)
            self._checkpoints.leave(call.call_id)
            return Ending.PASSED_ON if is_ours else Ending.TAKEN_OVER
        except asyncio.CancelledError as interruption:
            ended = _after_interruption(delivery, call, tool, interruption, has_begun=has_begun(context))
            if isinstance(ended, Ending):
                self._checkpoints.leave(call.call_id)
                return ended
            result = ended.model_copy(update={"spent": context.spent})
        reached(Point.EFFECT_DONE, call.call_id)
        return result

    def _be_below(self, attempts: Attempts, call: ToolCall) -> None:
        """Be in the trace of a call that is not recorded: what its tool records is not either, and baggage reaches it.

        Nothing is taken back, which would cost as much again: whatever runs here next says where it is, too.
        """
        if call.traceparent is None:
            attempts.tracing.leave()
        else:
            attempts.tracing.attach(call.traceparent, call.tracestate, call.baggage)

    async def _later(self, delivery: Delivery, call: ToolCall, error: RetryAfter) -> Failed | Ending:
        """Let the call wait for as long as its tool wants; the model is told where that cannot be."""
        if not delivery.stream:
            return limited(call.tool, error)
        if time.time() + error.seconds >= call.deadline_unix_s:
            return limited(call.tool, error, ", which is after the call's deadline")
        self._checkpoints.leave(call.call_id)
        is_ours = await postpone(self._client, self._keys, delivery, call, pause_s=error.seconds)
        return Ending.PASSED_ON if is_ours else Ending.TAKEN_OVER

    def _context(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any], checkpoint: Any) -> Context:
        # On a loop of its own a tool is cancelled by its coroutine or its process; only on a thread must it look.
        is_cancelled: Callable[[], bool] = (
            _never if self._threads else partial(cancel_requests.is_cancel_requested, call.call_id)
        )
        context = Context.of(
            call,
            attempt=delivery.deliveries,
            report=self._progress.of(call),
            is_cancelled=is_cancelled,
            keep=self._checkpoints.keep,
            last_checkpoint=checkpoint,
            address_of=self._address_of,
        )
        if call.undoes is None:
            context.spendings = []
            context.put_question = self._questions.put
            context.tell_piece = self._pieces.tell
            context.attempted = Attempt(delivery, call, tool)
        return context

    async def _call(
        self, call: ToolCall, tool: Tool[..., Any], context: Context, clock: TimeLimit | None
    ) -> Returned | Failed | Submitted:
        began_s = time.perf_counter()
        try:
            if self._watch is not None:  # as `watched` has it, which would cost every call of a pool without one
                is_undone = call.undoes is not None
                self._watch.begin(context.time_left_s if is_undone else limit_s(call, tool, time.time()))
            try:
                if call.undoes is not None:
                    return await compensate(call, tool, context, threads=self._threads)
                result = await execute(
                    call,
                    tool,
                    context,
                    threads=self._threads,
                    limits=self._limits,
                    interceptors=self._interceptors,
                    clock=clock,
                )
            finally:
                if self._watch is not None:
                    self._watch.end()
            if self._progress.waits(call):
                await self._progress.end(call)  # behind the result nobody listens
            return result
        finally:
            if tool.yields:
                await self._pieces.end(context)
            CALLS.ran(tool.spec.name, time.perf_counter() - began_s)

    async def _read_leftovers(self, call: ToolCall) -> tuple[bool, Any]:
        """Return whether the call was cancelled before it came here, and the checkpoint of an earlier attempt.

        A worker that was not there yet has not heard of a cancelled handle otherwise.
        """
        mark, sealed = await self._leftovers.add(call.call_id)
        if sealed is not None:
            self._checkpoints.note_found(call.call_id)
        return mark is not None, open_checkpoint(self._seal, sealed, call.call_id)

    async def _read_all_leftovers(self, call_ids: Sequence[str]) -> list[tuple[bytes | None, bytes | None]]:
        marks = [self._keys.cancelled(call_id) for call_id in call_ids]
        checkpoints = [self._keys.checkpoint(call_id) for call_id in call_ids]

        async def read() -> list[Any]:
            found: list[Any] = await self._client.mget([*marks, *checkpoints])
            return found

        found = await until_redis_is_back(read)
        return list(zip(found[: len(marks)], found[len(marks) :], strict=True))


def _never() -> bool:
    return False


def _after_interruption(
    delivery: Delivery, call: ToolCall, tool: Tool[..., Any], interruption: asyncio.CancelledError, *, has_begun: bool
) -> Failed | Ending:
    """Return the result of a call that was cancelled, or its ending when it is to be delivered again."""
    if not has_begun:
        return Ending.HANDED_BACK if Interruption.SHUTDOWN in interruption.args else cancelled_unstarted(call.tool)
    effect = delivery.effect(tool.spec.effect)
    if Interruption.SHUTDOWN not in interruption.args:
        return Failed(kind=FailureKind.CANCELLED, message=f"{call.tool} was cancelled while it ran.{doubt(effect)}")
    return after_shutdown(delivery, call, tool)


def after_shutdown(delivery: Delivery, call: ToolCall, tool: Tool[..., Any] | None) -> Failed | Ending:
    """Return the result, or the ending, of a call whose worker stops while it runs. No `tool`: nothing of one ran."""
    if delivery.effect(Effect.READ_ONLY if tool is None else tool.spec.effect).repeatable:
        return Ending.HANDED_BACK
    if call.undoes is None and may_be_asked(delivery, tool):
        return Ending.LEFT_OPEN
    return in_doubt(call.tool)


def may_be_asked(delivery: Delivery, tool: Tool[..., Any] | None) -> bool:
    """Return whether the tool can say what became of a call, to whoever has it next."""
    return tool is not None and tool.hooks.get("reconcile") is not None and can_be_reconciled(delivery)
