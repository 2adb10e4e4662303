"""One delivered call from admission to settlement where a child process runs it: the place of `Performer` there.

The common call is believed and let in here, run and sealed by a child, and settled here with others. Any other one a
child performs from its beginning to its end. A call that a child cannot end is ended here: its time is up, nobody wants
it any more, or its process was lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolfleet.calls import Effect, Failed, FailureKind, ToolCall
from toolfleet.connections import connect, connect_async
from toolfleet.errors import Refused
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.tracing import find_tracing
from toolfleet.wire import Seal
from toolfleet.workers.children.children import CLEAN_UP_S, ChildLost, Children, Connected, NoneFree, Overdue
from toolfleet.workers.children.words import Answer
from toolfleet.workers.delivery.admit import is_of
from toolfleet.workers.delivery.checkpoints import Checkpoints
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement
from toolfleet.workers.perform.attempts import Killed, record_killed
from toolfleet.workers.perform.conclusion import Conclusion
from toolfleet.workers.perform.endings import Ending, Interruption
from toolfleet.workers.perform.quick_calls import CommonCalls, Quick
from toolfleet.workers.perform.tool_run import after_shutdown, may_be_asked
from toolfleet.workers.tool.execute import limit_s
from toolfleet.workers.tool.failures import cancelled_unstarted, ended_from_outside, in_doubt

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet.workers")

TOGETHER: Final = 16
TOGETHER_WITHIN_S: Final = 0.004
"""While others wait for a child, so many results are settled together, or what there are of them after this time: to
Redis, and to whoever waits for them, one by one costs several times as much."""

SETTLED_WITHIN_S: Final = 1.0
"""How long the end of a process waits for its call to be settled: a tool that is interrupted would have the first word
otherwise."""


Run = Callable[[Delivery, ToolCall], Awaitable[Answer | Ending]]
"""Has a child perform a call. Returns what the child has said of it, or how it has ended without one."""


class ChildPerformer:
    """Has calls performed by children. Create it on their loop."""

    def __init__(self, settings: Settings, tools: Mapping[str, Tool[..., Any]], children: Children) -> None:
        self._settings = settings
        self._tools = tools
        self._children = children
        self._seal = Seal(settings)
        self._client = connect_async(settings)
        self._checkpoints = Checkpoints(asyncio.get_running_loop(), self._client, settings.keys, self._seal)
        self._conclusion = Conclusion(self._client, settings, tools, self._seal, self._checkpoints)
        self._settling = Settling(self._conclusion, lambda: children.are_wanted)
        self.quick = CommonCallsInChildren(settings, tools, self._seal, run=self._run_common, settling=self._settling)

    async def perform(self, delivery: Delivery) -> Ending:
        """See one delivery to its end. Returns how it ended; raises nothing of the tool's."""
        done = await self._run(delivery, self._opened(delivery), is_common=False)
        return done if isinstance(done, Ending) else done.ending

    async def drain(self) -> None:
        """Return when the results of common calls are settled."""
        self._settling.settle_all()
        await self._conclusion.drain()

    async def aclose(self) -> None:
        """End the children and close the connection."""
        await self._children.aclose()
        await self._checkpoints.aclose()
        await self._client.aclose()

    def _opened(self, delivery: Delivery) -> ToolCall | None:
        try:
            call = self._seal.open_call(delivery.text, delivery.mac)
        except Refused:
            return None  # nothing will run
        return call if is_of(delivery, call) else None

    async def _run_common(self, delivery: Delivery, call: ToolCall) -> Answer | Ending:
        return await self._run(delivery, call, is_common=True)

    async def _run(self, delivery: Delivery, call: ToolCall | None, *, is_common: bool) -> Answer | Ending:
        """Have a child perform a call."""
        try:
            return await self._run_in_any(delivery, call, is_common=is_common)
        except asyncio.CancelledError:
            return Ending.NOT_PERFORMED  # interrupted twice, in whatever it did about the first time

    async def _run_in_any(self, delivery: Delivery, call: ToolCall | None, *, is_common: bool) -> Answer | Ending:
        """Have a child that is free perform a call. One that is lost before it has begun with it was none."""
        while True:
            try:
                # Another broker counts what is given back.
                child = await self._children.take(is_patient=not delivery.stream)
            except NoneFree:
                return Ending.HANDED_BACK
            except asyncio.CancelledError as interruption:
                if call is None or Interruption.SHUTDOWN in interruption.args:
                    return Ending.HANDED_BACK
                return await self._conclusion.conclude(delivery, call, self._cancelled_waiting(delivery, call))
            try:
                return await self._run_in(child, delivery, call, is_common=is_common)
            except ChildLost as lost:
                if lost.has_begun:
                    return await self._lost(delivery, call)
            finally:
                self._children.give(child)

    async def _run_in(
        self, child: Connected, delivery: Delivery, call: ToolCall | None, *, is_common: bool
    ) -> Answer | Ending:
        limit_s = self._limit_s(delivery, call)
        # One whose time has come while it waited for a child is let in, or not, by the child.
        job = self._children.job(delivery, is_common=is_common and limit_s > 0)
        began_s = time.perf_counter()
        CALLS.started(delivery.task)
        asked = child.ask(job, limit_s)
        try:
            answer = await self._answer(asked)
        except asyncio.CancelledError as interruption:
            return await self._interrupt(child, delivery, call, interruption)
        except Overdue:
            if child.has_begun(job):
                return await self._end(child, delivery, call, FailureKind.TIMED_OUT)
            await child.end(within_s=0.0)
            raise ChildLost(has_begun=child.has_begun(job)) from None
        self._children.note_pace(time.perf_counter() - began_s)
        CALLS.add_elsewhere(delivery.task, answer.ran_s, answer.settled_s)
        return answer

    async def _answer(self, asked: asyncio.Future[Answer]) -> Answer:
        try:
            return await asked
        except asyncio.CancelledError:
            if asked.cancelled():
                raise
            return asked.result()  # it came at the same moment

    def _limit_s(self, delivery: Delivery, call: ToolCall | None) -> float:
        """Return how long a tool may run that begins now."""
        if call is None:
            return 0.0
        tool, now_unix_s = self._tools.get(delivery.task), time.time()
        return max(0.0, call.deadline_unix_s - now_unix_s) if tool is None else limit_s(call, tool, now_unix_s)

    def _cancelled_waiting(self, delivery: Delivery, call: ToolCall) -> Failed:
        if delivery.is_new:
            return cancelled_unstarted(call.tool)
        return ended_from_outside(call.tool, FailureKind.CANCELLED, self._effect(delivery))  # an attempt before

    def _effect(self, delivery: Delivery) -> Effect:
        tool = self._tools.get(delivery.task)
        return delivery.effect(Effect.READ_ONLY if tool is None else tool.spec.effect)

    # --- calls that no child ends ------------------------------------------------------------------------------------

    async def _interrupt(
        self, child: Connected, delivery: Delivery, call: ToolCall | None, why: asyncio.CancelledError
    ) -> Ending:
        if Interruption.SHUTDOWN not in why.args:
            return await self._end(child, delivery, call, FailureKind.CANCELLED)
        log.info("killed_at_shutdown", call_id=delivery.task_id, tool=delivery.task)
        await child.end(within_s=0.0)  # before anybody else is given the call, or asks what became of it
        return await self._leave(delivery, call)

    async def _end(self, child: Connected, delivery: Delivery, call: ToolCall | None, kind: FailureKind) -> Ending:
        """Settle a call that goes on, and end the process that is at it."""
        if call is None:
            child.end(within_s=CLEAN_UP_S)
            return Ending.NOT_PERFORMED
        failure = ended_from_outside(call.tool, kind, self._effect(delivery))
        settling = asyncio.ensure_future(self._settle(delivery, call, failure))  # watched: awaited below
        try:
            await asyncio.wait([settling], timeout=SETTLED_WITHIN_S)
        finally:
            child.end(within_s=CLEAN_UP_S)
        return await settling

    async def _lost(self, delivery: Delivery, call: ToolCall | None) -> Ending:
        """Deal with a call whose process is gone: repeat it if harmless, else reconcile it or end it in doubt."""
        tool = self._tools.get(delivery.task)
        if call is None or self._effect(delivery).repeatable or may_be_asked(delivery, tool):
            return Ending.NOT_PERFORMED
        return await self._settle(delivery, call, in_doubt(call.tool))

    async def _leave(self, delivery: Delivery, call: ToolCall | None) -> Ending:
        """Deal with a call whose process was killed because this worker stops, so this delivery does not count."""
        if call is None:
            return Ending.HANDED_BACK
        outcome = after_shutdown(delivery, call, self._tools.get(delivery.task))
        return outcome if isinstance(outcome, Ending) else await self._settle(delivery, call, outcome)

    async def _settle(self, delivery: Delivery, call: ToolCall, failure: Failed) -> Ending:
        self._checkpoints.note_found(call.call_id)  # the child may have written one
        tracing, tool = find_tracing(), self._tools.get(delivery.task)
        if call.traceparent is not None and tool is not None and tracing is not None:
            await asyncio.to_thread(self._record_killed, tracing, Killed(call, tool.spec, failure))
        return await self._conclusion.conclude(delivery, call, failure)

    def _record_killed(self, tracing: Tracing, killed: Killed) -> None:
        with connect(self._settings) as client:
            record_killed(tracing, client, self._settings.keys, self._seal, killed)


class CommonCallsInChildren(CommonCalls):
    """Performs the common calls of a pool of processes."""

    def __init__(
        self, settings: Settings, tools: Mapping[str, Tool[..., Any]], seal: Seal, *, run: Run, settling: Settling
    ) -> None:
        super().__init__(settings, tools, seal)
        self._run = run
        self._settling = settling

    async def perform(self, quick: Quick, tell: Callable[[Quick, Ending], None]) -> None:
        """Run a call and have it settled. `tell` is called once, then or later, with how it has ended."""
        try:
            done = await self._run(quick.delivery, quick.call)
            if not isinstance(done, Ending):
                if done.settlement is not None:
                    self._settling.add(done.settlement, done.ending, partial(tell, quick))
                    return
                done = done.ending
        except Exception:  # a slot must be given back whatever happens
            done = Ending.NOT_PERFORMED
            log.exception("call_not_performed", call_id=quick.call.call_id, tool=quick.call.tool)
        tell(quick, done)


class Settling:
    """Has results settled at once, or together while calls come and go quickly."""

    def __init__(self, conclusion: Conclusion, are_others_waiting: Callable[[], bool]) -> None:
        """`are_others_waiting` says whether calls wait here for a child."""
        self._conclusion = conclusion
        self._are_others_waiting = are_others_waiting
        self._done: list[tuple[Settlement, Ending, Callable[[Ending], None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, settlement: Settlement, ending: Ending, tell: Callable[[Ending], None]) -> None:
        """Have a call settled, and `tell` the ending if that arrives."""
        self._done.append((settlement, ending, tell))
        if len(self._done) == TOGETHER or not self._are_others_waiting():
            self.settle_all()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_WITHIN_S, self.settle_all)

    def settle_all(self) -> None:
        """Have settled what waits for others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        done, self._done = self._done, []
        for each in done:
            self._conclusion.settle_soon(*each)
