"""One delivered call from admission to settlement: the column that every pool runs.

Knows Redis through its parts (claims, settle, dead letters) and nothing of Celery's pools or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import redis
import stamina

from toolfleet.callbacks import callbacks
from toolfleet.calls import Effect, Failed, FailureKind, JobRecord, NotDone, Returned, Submitted, ToolCall
from toolfleet.connections import connect_async
from toolfleet.context import Context
from toolfleet.errors import Refused
from toolfleet.interceptors import ToolInterceptor
from toolfleet.points import Point, reached
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery import unwanted
from toolfleet.workers.delivery.admit import Ended, Unbelievable, Unresolved, admit, can_be_reconciled
from toolfleet.workers.delivery.checkpoints import Checkpoints, LoopCheckpoints, ThreadCheckpoints, opened
from toolfleet.workers.delivery.claims import Claimer, is_still_ours
from toolfleet.workers.delivery.dead_letters import bury
from toolfleet.workers.delivery.forward import UNSERVED_FOR_S, Forwarder, Passed
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.progress import LoopReporter, ProgressReporter, ThreadReporter
from toolfleet.workers.delivery.settle import Outcome, Settlement, Settler
from toolfleet.workers.jobs.decide import job_of
from toolfleet.workers.jobs.schedule import submit
from toolfleet.workers.tool.artifacts import Fitting
from toolfleet.workers.tool.execute import compensate, execute, reconcile
from toolfleet.workers.tool.failures import cancelled_unstarted, in_doubt

T = TypeVar("T")


class Ending(StrEnum):
    """What became of a delivery."""

    SETTLED = "settled"
    """Its result is stored and its message acknowledged."""
    FAILED = "failed"
    """The same, and the result says that it failed."""
    CANCELLED = "cancelled"
    """The same, and the result says that it was cancelled."""
    BURIED = "buried"
    """It was a duplicate or nobody's call: nothing is owed but an acknowledgement."""
    TAKEN_OVER = "taken_over"
    """Another worker owns it by now; its message must not be touched."""
    HANDED_BACK = "handed_back"
    """This worker stops before its tool has done harm; another one will start it anew."""
    LEFT_OPEN = "left_open"
    """This worker stops in the midst of an effect: another one asks the tool's reconcile function what became of it."""
    PASSED_ON = "passed_on"
    """Another worker serves its tool, or may soon; the delivery does not count."""
    NOT_PERFORMED = "not_performed"
    """This worker failed, not the tool; as if it had been lost."""


class Interruption(StrEnum):
    """Why a running call is cancelled: the message of its CancelledError."""

    REVOKED = "revoked"
    SHUTDOWN = "shutdown"


class Performer:
    """Performs calls on one event loop. Create it on that loop."""

    def __init__(
        self,
        settings: Settings,
        tools: Mapping[str, Tool[..., Any]],
        threads: Executor | None,
        interceptors: tuple[ToolInterceptor, ...] = (),
    ) -> None:
        """`interceptors` stand around every tool; without `threads`, blocking tools run on the loop."""
        self._interceptors = interceptors
        self._settings = settings
        self._tools = tools
        self._threads = threads
        self._limits = settings.argument_limits
        self._seal = Seal(settings)
        self._address_of = callbacks(settings, self._seal)
        self._client = connect_async(settings)
        self._fitting = Fitting(self._client, settings)
        self._settler = Settler(self._client, settings.keys)
        self._claimer = Claimer(self._client, settings.keys)
        self._forwarder = Forwarder(self._client, settings.keys)
        self._progress: ProgressReporter = (
            LoopReporter(self._client, settings.keys, self._seal) if threads else ThreadReporter(settings, self._seal)
        )
        self._checkpoints: Checkpoints = (
            LoopCheckpoints(self._client, settings.keys, self._seal)
            if threads
            else ThreadCheckpoints(settings, self._seal)
        )

    async def perform(self, delivery: Delivery) -> Ending:
        """See one delivery to its end. Returns how it ended; raises nothing of the tool's."""
        reached(Point.RECEIVED, delivery.task_id)
        tool = self._tools.get(delivery.task)
        if tool is None or delivery.contract not in ("", tool.spec.contract):
            passed_on = await self._passed_on(delivery, can_run=tool is not None)
            if passed_on is not None:
                return passed_on
        return await self._judged(delivery, tool)

    async def _judged(self, delivery: Delivery, tool: Tool[..., Any] | None) -> Ending:
        """See a delivery to its end that is this worker's, or nobody's."""
        effect = delivery.effect(tool.spec.effect if tool else Effect.READ_ONLY)
        decision = admit(
            delivery,
            effect,
            self._seal,
            now_unix_s=time.time(),
            max_deliveries=self._settings.max_deliveries,
            reconciles=tool is not None and tool.hooks.get("reconcile") is not None,
        )
        if isinstance(decision, Unbelievable):
            await self._bury(delivery, decision.reason)
            return Ending.BURIED
        if isinstance(decision, Ended):
            if decision.dead_letter:
                await self._bury(delivery, decision.result.kind)
            return await self._settle(delivery, decision.call, decision.result)
        if tool is None:
            return await self._settle(delivery, decision.call, self._unknown(decision.call))
        if decision.must_claim and not await self._claimer.claim(delivery, decision.call):
            return Ending.BURIED
        if isinstance(decision, Unresolved):
            return await self._resolve(delivery, decision.call, tool)
        return await self._start(delivery, decision.call, tool)

    async def _passed_on(self, delivery: Delivery, *, can_run: bool) -> Ending | None:
        """The ending of a call that is another worker's to run; None for one that must be dealt with here."""
        try:
            call = self._seal.open_call(delivery.text, delivery.mac)
        except Refused:
            return None
        if (call.call_id, call.tool) != (delivery.task_id, delivery.task):
            return None
        match await self._forwarder.pass_on(delivery, call, can_run=can_run):
            case Passed.NOT:
                return None
            case Passed.LOST:
                return Ending.TAKEN_OVER
            case _:
                return Ending.PASSED_ON

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        tool = self._tools.get(delivery.task)
        await bury(self._client, self._settings.keys, delivery, reason, tool.spec.input_schema if tool else None)

    async def aclose(self) -> None:
        """Close the connection; what is still running fails."""
        await self._checkpoints.aclose()
        await self._client.aclose()

    async def _resolve(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any]) -> Ending:
        """End the call by what became of its earlier attempt, or start it if that had no effect.

        The pending entry stays the fence. If this worker is lost too, the next one asks again.
        """
        _, checkpoint = await self._left_of(call)
        context = Context.of(call, attempt=delivery.deliveries, last_checkpoint=checkpoint)
        try:
            answer = await reconcile(call, tool, context, threads=self._threads)
        except asyncio.CancelledError as interruption:
            if Interruption.SHUTDOWN in interruption.args:
                return Ending.HANDED_BACK  # uncounted, but the earlier delivery still counts: the next one asks too
            answer = in_doubt(call.tool)
        if not isinstance(answer, NotDone):
            return await self._settle(delivery, call, answer)
        if not await is_still_ours(self._client, delivery):
            # Frozen while it asked: another worker may have asked since, and begun.
            return Ending.TAKEN_OVER
        return await self._start(delivery, call, tool)

    async def _start(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any]) -> Ending:
        checkpoint = None
        # A worker that stopped in order has handed back its calls uncounted; only long ones are worth the look then.
        # What came up at once was not cancelled before this worker could hear of it.
        if tool.spec.long_running or delivery.deliveries > 1 or not delivery.came_at_once(time.time()):
            is_cancelled, checkpoint = await self._left_of(call)
            if is_cancelled:
                return await self._settle(delivery, call, cancelled_unstarted(tool.spec.name))
        return await self._run(delivery, call, tool, checkpoint)

    async def _run(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any], checkpoint: Any) -> Ending:
        reached(Point.CLAIMED, call.call_id)
        context = Context.of(
            call,
            attempt=delivery.deliveries,
            report=self._progress.of(call),
            is_cancelled=_never if self._threads else partial(unwanted.is_given_up, call.call_id),
            keep=self._checkpoints.keep,
            last_checkpoint=checkpoint,
            address_of=self._address_of,
        )
        if tool.spec.long_running:
            context.progress(0.0)  # whoever asks with its handle learns that it runs
        try:
            result = await self._performed(call, tool, context)
        except asyncio.CancelledError as interruption:
            ending = _interrupted(delivery, call, tool, interruption)
            if isinstance(ending, Ending):
                self._checkpoints.leave(call.call_id)
                return ending
            result = ending
        reached(Point.EFFECT_DONE, call.call_id)
        return await self._settle(delivery, call, result)

    async def _performed(self, call: ToolCall, tool: Tool[..., Any], context: Context) -> Returned | Failed | Submitted:
        if call.undoes is not None:
            return await compensate(call, tool, context, threads=self._threads)
        return await execute(
            call, tool, context, threads=self._threads, limits=self._limits, interceptors=self._interceptors
        )

    async def _left_of(self, call: ToolCall) -> tuple[bool, Any]:
        """Whether the call was cancelled, and the checkpoint of an earlier attempt.

        A worker that was not there yet has not heard of a cancelled handle otherwise.
        """
        keys = self._settings.keys
        async for attempt in stamina.retry_context(on=redis.RedisError, attempts=None, timeout=None, wait_max=2.0):
            with attempt:
                mark, sealed = await self._client.mget(keys.cancelled(call.call_id), keys.checkpoint(call.call_id))
        if sealed is not None:
            self._checkpoints.found(call.call_id)
        return mark is not None, opened(self._seal, sealed, call.call_id)

    async def _settle(self, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted) -> Ending:
        if self._fitting.is_needed(result):
            result = await _to_its_end(asyncio.ensure_future(self._fitting.fitted(result, call)))
        outcome, result = await self._outcome(delivery, call, result)
        reached(Point.SETTLED, call.call_id)
        self._checkpoints.end(call.call_id, settled=outcome is not Outcome.LATE)
        return Ending.TAKEN_OVER if outcome is Outcome.LATE else _settled_as(result)

    async def _outcome(
        self, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted
    ) -> tuple[Outcome, Returned | Failed | Submitted]:
        """What became of the settlement, and the result that it was made with."""
        if isinstance(result, Submitted):
            job = job_of(delivery, call, self._tools[call.tool], result)
            if isinstance(job, JobRecord):
                return await submit(self._client, self._settings, self._seal, delivery, job), result
            result = job
        settlement = Settlement.of(delivery, call, result, self._seal)
        try:
            return await self._settler.settle(settlement), result
        except asyncio.CancelledError:
            # It is on its way all the same; sent twice, it counts once.
            return await _to_its_end(self._settler.settle(settlement)), result

    def _unknown(self, call: ToolCall) -> Failed:
        known = ", ".join(sorted(self._tools)) or "none"
        return Failed(
            kind=FailureKind.UNKNOWN_TOOL,
            message=f"no live worker serves {call.tool}, and none came within {UNSERVED_FOR_S:g} s or before the "
            f"call's deadline. The worker that gave it up has: {known}",
        )


def _settled_as(result: Returned | Failed | Submitted) -> Ending:
    if not isinstance(result, Failed):
        return Ending.SETTLED
    return Ending.CANCELLED if result.kind is FailureKind.CANCELLED else Ending.FAILED


def _never() -> bool:
    return False


async def _to_its_end(settling: asyncio.Future[T]) -> T:
    """What comes of it, even when cancelled: a call given back while its result is on its way could run again."""
    while not settling.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(settling)
    return settling.result()


def _interrupted(
    delivery: Delivery, call: ToolCall, tool: Tool[..., Any], interruption: asyncio.CancelledError
) -> Failed | Ending:
    """The result of a call that was cancelled, or its ending when it is to be delivered again."""
    if Interruption.SHUTDOWN not in interruption.args:
        return Failed(kind=FailureKind.CANCELLED, message=f"{call.tool} was cancelled while it ran.")
    if delivery.effect(tool.spec.effect).repeatable:
        return Ending.HANDED_BACK
    if call.undoes is None and tool.hooks.get("reconcile") and can_be_reconciled(delivery):
        return Ending.LEFT_OPEN
    return in_doubt(call.tool)
