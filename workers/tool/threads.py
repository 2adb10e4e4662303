"""The threads that blocking tools run on: a few, and as many as there are calls while they leave time to others.

A tool that waits costs next to nothing, and one that computes keeps the interpreter from all others: more of those at
once make each slower and none sooner done. Nobody says which a tool is, so threads are added while those that run are
seen to wait. A thread cannot be stopped, so those that nobody waits for are counted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from toolfleet.context import Context
from toolfleet.logs import FactLog
from toolfleet.workers.tool.time_limit import clock_of

log = FactLog("toolfleet.workers")

TOOL_THREAD: Final = "tool"
"""How the names of these threads begin."""

FEW: Final = 8
"""So many begin without a question."""

LOOK_EVERY_S: Final = 0.01
"""How often is asked whether more may run, while a call waits for that."""

COMPUTING: Final = 0.5
"""How much of a core the threads use that compute rather than wait."""

LATE_S: Final = 0.01
"""A loop that is this late waits for the interpreter, or the process for its share of a core."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a tool that computes on a thread keeps the interpreter; Python's own 0.005 s add up for the loop."""

IDLE_S: Final = 10.0
"""How long few have run before threads that were added are let go of, and before more are asked for again."""

MANY_HANG: Final = 32
"""So many that hang are looked at: whether they compute, of which they never tire."""

HANGING_LOOKED_AT_S: Final = 1.0

Value = TypeVar("Value")


class ToolThreads:
    """Runs functions on threads, for one event loop."""

    def __init__(self, most: int, when_none_is_left: Callable[[], None]) -> None:
        """`most`: how many at a time. `when_none_is_left` is called once, on the loop: no call can begin any more."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self._wanted = self.most = most
        self._when_none_is_left = when_none_is_left
        self._executor = _Executor(most, self._is_refused_more_than)
        self._running = self._run_elsewhere = self._hanging = self._most_ran = 0
        self._allowed = self._few
        self._waiting: deque[_Turn] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self._looking_at_hanging: asyncio.TimerHandle | None = None
        self._looking_back: asyncio.TimerHandle | None = None
        self._why_no_more: object = None

    @property
    def hanging(self) -> int:
        """Threads whose call was given up and that still run."""
        return self._hanging

    async def run(
        self,
        function: Callable[..., Value],
        *arguments: Any,
        context: Context | None = None,
        when_it_begins: Callable[[], None] | None = None,
    ) -> Value:
        """Return what a function returns on a thread, once one is free. Raises what it raises.

        It sees the context variables of whoever calls, `current_context()` among them. The clock of its call, which
        `context` has, stands still until it begins, and says whether it has begun. When it has, nothing stops it: once
        it is cancelled it hangs until it ends.
        """
        if self._waiting or self._running >= self._allowed or self._why_no_more is not None:
            await self._wait(context)
        else:
            self._running += 1
        if when_it_begins is not None:
            when_it_begins()
        clock = clock_of(context)
        is_first = clock is not None and clock.begin()
        executor = self._executor
        running = executor.submit(copy_context().run, _without_stop_iteration, function, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running.cancelled() and clock is not None and is_first:
                clock.begin_after_all()  # no thread had taken it yet
            raise
        finally:
            if running.done():
                self._end(executor)
            else:
                self._give_up(running, executor)

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run what is no tool, whatever comes of it, when a thread is free."""
        self._executor.submit(function, *arguments)

    def begin_no_more(self, why: object) -> None:
        """Cancel the calls that wait for a thread, and those that come to wait from now on, with this reason."""
        self._why_no_more = why
        for turn in tuple(self._waiting):
            turn.cancel(why)

    def shutdown(self) -> None:
        """Begin nothing more, and wait for nothing. May be called on any thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # --- who may begin ------------------------------------------------------------------------------------------

    @property
    def _few(self) -> int:
        """How many may run whatever they do; those that nobody waits for are no reason to wait."""
        return min(FEW + self._hanging, self.most)

    async def _wait(self, context: Context | None) -> None:
        """Return when it is this call's turn, which then counts as running."""
        turn = _Turn(asyncio.get_running_loop().create_future(), context)
        self._waiting.append(turn)
        if self._why_no_more is not None:
            turn.cancel(self._why_no_more)
        if self._looking is None:
            self._look_later()
        try:
            await turn.comes
        except asyncio.CancelledError:
            if not turn.comes.cancelled():  # it came in the same moment
                self._end(self._executor)
            raise

    def _let_begin(self) -> None:
        """Let those begin that wait longest, while there is room."""
        while self._waiting and self._running < self._allowed:
            turn = self._waiting.popleft()
            if not turn.comes.done():  # else nobody waits there any more
                turn.comes.set_result(None)
                self._running += 1

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look, _Clocks(LOOK_EVERY_S))

    def _look(self, clocks: _Clocks) -> None:
        """Let twice as many run as do, unless those compute."""
        self._looking = None
        if clocks.say_that_threads_compute():
            self._allowed = self._few
        else:
            self._allowed = min(2 * max(self._running, self._few), self.most)
        self._let_begin()
        if self._waiting:
            for turn in self._waiting:
                turn.wait_on()
            self._look_later()

    def _end(self, executor: _Executor) -> None:
        if executor is not self._executor:
            self._run_elsewhere -= 1
        self._most_ran = max(self._most_ran, self._running)
        if self._running > self._few:
            self._look_back_later()
        self._running -= 1
        spare = max(self._running // 4, FEW)
        self._allowed = max(min(self._running + spare, self._allowed), self._few)
        self._let_begin()

    # --- threads that hang, that are not to be had, and that are needed no more ----------------------------------

    def _give_up(self, running: Future[Any], executor: _Executor) -> None:
        loop = asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody counts any more
                loop.call_soon_threadsafe(self._has_ended_after_all, executor)

        self._hanging += 1
        running.add_done_callback(ended)
        self._tell_if_all_hang()
        if self._hanging >= MANY_HANG and self._looking_at_hanging is None:
            self._looking_at_hanging = loop.call_later(
                HANGING_LOOKED_AT_S, self._look_at_hanging, _Clocks(HANGING_LOOKED_AT_S)
            )

    def _has_ended_after_all(self, executor: _Executor) -> None:
        self._hanging -= 1
        self._end(executor)

    def _look_at_hanging(self, clocks: _Clocks) -> None:
        """See whether those that hang take the time of all others, which gets no better."""
        self._looking_at_hanging = None
        if self._hanging >= MANY_HANG and clocks.say_that_threads_compute():
            self._none_is_left()

    def _tell_if_all_hang(self) -> None:
        if self._hanging >= self.most:
            self._none_is_left()

    def _none_is_left(self) -> None:
        tell, self._when_none_is_left = self._when_none_is_left, _nothing
        tell()

    def _is_refused_more_than(self, count: int) -> None:
        """Be content for a while with the threads that there are: the system gives no more."""
        self.most = max(count + self._run_elsewhere, 1)
        self._allowed = min(self._allowed, self.most)
        log.warning("worker_refused_threads", threads=self.most)
        self._look_back_later()
        if not count:
            self._none_is_left()
        self._tell_if_all_hang()

    def _look_back_later(self) -> None:
        if self._looking_back is None:
            self._most_ran = self._running
            self._looking_back = asyncio.get_running_loop().call_later(IDLE_S, self._look_back)

    def _look_back(self) -> None:
        """Let the threads end that nobody has needed lately, and hope for more where they were refused."""
        self._looking_back = None
        self.most = self._wanted
        if max(self._most_ran, self._running) > self._few:
            self._look_back_later()
            return
        self._executor.shutdown(wait=False)  # those that run go on, and end with their call
        self._executor = _Executor(self.most, self._is_refused_more_than)
        self._run_elsewhere = self._running


class _Turn:
    """The place of a call among those that wait."""

    __slots__ = ("_clock", "_context", "comes")

    def __init__(self, comes: asyncio.Future[None], context: Context | None) -> None:
        self.comes = comes
        self._context = context
        self._clock = clock_of(context)
        if self._clock is not None:
            self._clock.wait_to_begin()

    def wait_on(self) -> None:
        """Let the clock of the call stand still from here on: before, it has been a moment."""
        if self._clock is not None and self._context is not None and not self.comes.done():
            self._clock.stand_until_it_begins(self._context.time_left_s)

    def cancel(self, why: object) -> None:
        """Cancel the whole call, whatever its interceptors have put between it and this."""
        if self._clock is not None:
            self._clock.cancel(why)
        else:
            self.comes.cancel(why)


class _Clocks:
    """What passes, and what the process and the loop's thread use, for so long. Made on the loop."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._began_s, self._process_s, self._loop_s = time.perf_counter(), time.process_time(), time.thread_time()

    def say_that_threads_compute(self) -> bool:
        """Whether the other threads have used the process since, rather than waited. To be asked after that time."""
        passed_s = time.perf_counter() - self._began_s
        by_loop_s = time.thread_time() - self._loop_s
        by_threads_s = time.process_time() - self._process_s - by_loop_s
        is_late = passed_s > self._for_s + LATE_S
        return by_threads_s > COMPUTING * passed_s or (is_late and by_threads_s > by_loop_s)


class _Executor(ThreadPoolExecutor):
    def __init__(self, most: int, when_refused: Callable[[int], None]) -> None:
        super().__init__(most, thread_name_prefix=TOOL_THREAD)
        self._when_refused = when_refused

    def _adjust_thread_count(self) -> None:
        """Start a thread for what was queued just before; where that fails, one that is there takes it in its turn."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            self._when_refused(len(self._threads))


def _without_stop_iteration(function: Callable[..., Value], *arguments: Any) -> Value:
    """Call it. No future may hold a StopIteration: whoever waited for it would wait for ever."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("tool failed: StopIteration") from error


def _nothing() -> None:
    """Nobody is told a second time."""
