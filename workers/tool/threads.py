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
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, TypeVar

from toolfleet.logs import FactLog

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
"""How long no tool has run before threads that were added are let go of."""

Value = TypeVar("Value")


class NotBegun(asyncio.CancelledError):
    """A call is ended while it waits for a thread, and why is said as with any cancellation: it has had no effect."""


class ToolThreads:
    """Runs functions on threads, for one event loop."""

    def __init__(self, most: int, when_none_is_left: Callable[[], None]) -> None:
        """`most`: how many at a time. `when_none_is_left` is called once, on the loop: no call can begin any more."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        self.most = most
        self._when_none_is_left = when_none_is_left
        self._executor = _Executor(most, self._is_refused_more_than)
        self._allowed = self._few
        self._running = self._hanging = 0
        self._waiting: deque[_Turn] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self._looked = _Clocks()
        self._has_grown = False
        self._letting_go: asyncio.TimerHandle | None = None
        self._why_no_more: object = None

    @property
    def hanging(self) -> int:
        """Threads whose call was given up and that still run."""
        return self._hanging

    async def run(
        self,
        function: Callable[..., Value],
        *arguments: Any,
        while_it_waits: AbstractContextManager[object] | None = None,
    ) -> Value:
        """Return what a function returns on a thread, once one is free. Raises what it raises.

        `while_it_waits` is entered if that takes longer than a moment. Raises NotBegun when it is cancelled before.
        Afterwards nothing stops the function: it hangs until it ends.
        """
        if self._waiting or self._running >= self._allowed or self._why_no_more is not None:
            await self._wait(while_it_waits)
        else:
            self._running += 1
        running = self._executor.submit(function, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError as cancelled:
            if running.cancelled():  # no thread had taken it yet
                raise NotBegun(*cancelled.args) from None
            raise
        finally:
            if running.done():
                self._end()
            else:
                self._give_up(running)

    def begin_no_more(self, why: object) -> None:
        """End what waits for a thread, and what comes from now on, with NotBegun and this reason."""
        self._why_no_more = why
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.comes.done():
                turn.comes.set_exception(NotBegun(why))

    def shutdown(self) -> None:
        """Begin nothing more, and wait for nothing. May be called on any thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # --- who may begin ------------------------------------------------------------------------------------------

    @property
    def _few(self) -> int:
        return min(FEW, self.most)

    async def _wait(self, meanwhile: AbstractContextManager[object] | None) -> None:
        """Return when it is this call's turn, which then counts as running."""
        if self._why_no_more is not None:
            raise NotBegun(self._why_no_more)
        turn = _Turn(asyncio.get_running_loop().create_future(), meanwhile)
        self._waiting.append(turn)
        if self._looking is None:
            self._look_later()
        try:
            await turn.comes
        except NotBegun:
            raise
        except asyncio.CancelledError as cancelled:
            if not turn.comes.cancelled():  # it came in the same moment
                self._end()
            raise NotBegun(*cancelled.args) from None
        finally:
            turn.wait_no_more()

    def _let_begin(self) -> None:
        """Let those begin that wait longest, while there is room."""
        while self._waiting and self._running < self._allowed:
            turn = self._waiting.popleft()
            if not turn.comes.done():  # else nobody waits there any more
                turn.comes.set_result(None)
                self._running += 1

    def _look_later(self) -> None:
        self._looked = _Clocks()
        self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Let twice as many run as do, unless those compute."""
        self._looking = None
        if self._looked.say_that_threads_compute():
            self._allowed = self._few
            if self._hanging == self._running >= self._few:
                self._none_is_left()
        else:
            self._allowed = min(2 * max(self._running, self._few), self.most)
            self._has_grown = True
        self._let_begin()
        if self._waiting:
            for turn in self._waiting:
                turn.wait_on()
            self._look_later()

    def _end(self) -> None:
        self._running -= 1
        spare = max(self._running // 4, self._few)
        self._allowed = max(min(self._running + spare, self._allowed), self._few)
        self._let_begin()
        if self._has_grown and self._running == self._hanging and self._letting_go is None:
            self._letting_go = asyncio.get_running_loop().call_later(IDLE_S, self._let_go)

    # --- threads that hang, that are not to be had, and that are needed no more ----------------------------------

    def _give_up(self, running: Future[Any]) -> None:
        loop = asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody counts any more
                loop.call_soon_threadsafe(self._has_ended_after_all)

        self._hanging += 1
        running.add_done_callback(ended)
        if self._hanging >= self.most:
            self._none_is_left()

    def _has_ended_after_all(self) -> None:
        self._hanging -= 1
        self._end()

    def _let_go(self) -> None:
        """Let the threads end that have nothing to do."""
        self._letting_go = None
        if self._running == self._hanging:
            self._has_grown = False
            self._executor.shutdown(wait=False)
            self._executor = _Executor(self.most, self._is_refused_more_than)

    def _none_is_left(self) -> None:
        tell, self._when_none_is_left = self._when_none_is_left, _nothing
        tell()

    def _is_refused_more_than(self, count: int) -> None:
        """Be content with the threads that there are: the system gives no more."""
        log.warning("worker_refused_threads", threads=count)
        self.most = max(count, 1)
        self._allowed = min(self._allowed, self.most)
        if not count:
            self._none_is_left()


class _Turn:
    """The place of a call among those that wait."""

    __slots__ = ("_meanwhile", "_waits_on", "comes")

    def __init__(self, comes: asyncio.Future[None], meanwhile: AbstractContextManager[object] | None) -> None:
        self.comes = comes
        self._meanwhile = meanwhile
        self._waits_on = False

    def wait_on(self) -> None:
        """Begin with what lasts as long as it waits."""
        if not self._waits_on and self._meanwhile is not None and not self.comes.done():
            self._waits_on = True
            self._meanwhile.__enter__()

    def wait_no_more(self) -> None:
        """End what has begun with that."""
        if self._waits_on and self._meanwhile is not None:
            self._meanwhile.__exit__(None, None, None)


class _Clocks:
    """What has passed, and what the process and the loop's thread have used, since this was made on the loop."""

    def __init__(self) -> None:
        self._began_s, self._process_s, self._loop_s = time.perf_counter(), time.process_time(), time.thread_time()

    def say_that_threads_compute(self) -> bool:
        """Whether the other threads have used the process since, rather than waited. Asked LOOK_EVERY_S later."""
        passed_s = time.perf_counter() - self._began_s
        by_loop_s = time.thread_time() - self._loop_s
        by_threads_s = time.process_time() - self._process_s - by_loop_s
        is_late = passed_s > LOOK_EVERY_S + LATE_S
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


def _nothing() -> None:
    """Nobody is told a second time."""
