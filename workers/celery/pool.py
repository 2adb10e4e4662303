"""An asyncio pool for Celery: a thousand calls at a time in one process, on an event loop in a thread of its own.

The only file that touches Celery's pool internals. Tools run here; blocking ones on a bounded set of threads beside it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from celery.concurrency.base import BasePool, apply_target
from celery.worker import state
from kombu.asynchronous import Hub

from toolfleet.connections import connect_async
from toolfleet.event_loop import new_event_loop
from toolfleet.exit_status import ExitStatus
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.signs_of_life import LOOP, SignOfLife
from toolfleet.streams.channel import StreamChannel
from toolfleet.streams.loop_reader import LoopReader
from toolfleet.supervision import start_thread
from toolfleet.workers.celery.quick_lane import QuickLane, QuickRequest
from toolfleet.workers.celery.reports import Reports
from toolfleet.workers.celery.request import ToolRequest
from toolfleet.workers.celery.watchdog import Watchdog
from toolfleet.workers.children.performer import ChildPerformer
from toolfleet.workers.perform.endings import Ending, Interruption
from toolfleet.workers.perform.performer import Performer
from toolfleet.workers.perform.quick_calls import QuickCalls
from toolfleet.workers.tool.failures import blocked
from toolfleet.workers.tool.threads import ToolThreads

log = FactLog("toolfleet.workers")

LET_GO_S: Final = 0.001
"""How long Celery's thread stands aside for a call that arrives at an idle pool."""

BEGIN_NO_MORE_WITHIN_S: Final = 1.0
"""How long a worker that stops waits for the loop to hear of it."""

GIVE_BACK_EVERY_S: Final = 0.1
"""How often a pool that stops gives back what it will not run."""

SETTLE_WITHIN_S: Final = 5.0
"""How long the end waits for what was cancelled, and for the last results to be stored."""


class AsyncioPool(BasePool):  # type: ignore[misc]  # celery ships no types
    """Performs tool calls as coroutines; other Celery tasks run on its threads."""

    signal_safe = False
    task_join_will_block = False
    body_can_be_buffer = True
    _count_arrival = staticmethod(CALLS.begun)

    def on_start(self) -> None:
        """Start the loop's thread. Returns when the loop runs."""
        self._threads = ToolThreads(self.limit, self._retire_without_threads)
        self._arrived: deque[ToolRequest] = deque()
        # By request, not by id: two messages may bring the same call.
        self._tasks: dict[ToolRequest | QuickRequest, asyncio.Task[None]] = {}
        self._pid = os.getpid()
        self._started = threading.Event()
        self._settings = self.app.toolfleet.settings
        self._loop = new_event_loop()
        self._stops = False
        self._grace_is_over: asyncio.Future[None] = self._loop.create_future()
        self.reports = Reports(self._loop)
        self._reader: LoopReader | None = None
        self._channel: StreamChannel | None = None
        sign = SignOfLife(self._settings.alive_dir, LOOP)
        self._watchdog = Watchdog(self._loop, self._settings.blocked_loop_s, self._end_blocked, sign)
        running = threading.Event()
        self._thread = start_thread("tools", self._run_loop, running, again=False)
        running.wait()

    def register_with_event_loop(self, loop: Hub) -> None:
        """Take Celery's event loop, which is told of calls."""
        self.reports.register(loop)

    def read_for(self, consumer: Any) -> None:
        """Read a consumer's queues on the tools' loop, if they are on the fleet's own streams; else Celery does."""
        channel, self._reader = consumer.task_consumer.channel, None
        self._channel = channel if isinstance(channel, StreamChannel) else None
        if isinstance(channel, StreamChannel) and not self._settings.broker_url:
            self._reader = LoopReader(channel, self._loop, partial(connect_async, self._settings))
            lane = QuickLane(consumer, channel, self._performer.quick, self._start_quick)
            self.reports.take_events_of(consumer)
            channel.read_by(self._reader, first=lane.take)

    def perform(self, request: ToolRequest) -> None:
        """Start a call. Called on the tools' loop or on Celery's thread; returns at once."""
        if threading.get_ident() == self._thread.ident:
            request.begin(self._pid)
            self.reports.add_start(request)
            self._start(request)
            return
        request.announce_received()
        request.on_started(self._pid)
        self._arrived.append(request)
        if len(self._arrived) == 1:
            # One wake-up for all that arrive before the loop looks.
            self._started.clear()
            self._loop.call_soon_threadsafe(self._start_arrived)
            if not self._tasks:
                # Let go of the interpreter until the loop has it: else a lone call waits for this thread's chores.
                self._started.wait(LET_GO_S)

    def cancel(self, call_id: str) -> None:
        """Cancel a running call; it ends as cancelled."""
        self._loop.call_soon_threadsafe(self._cancel, call_id)

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        """Run a plain Celery task on a thread."""
        submit = self._threads.submit
        self._loop.call_soon_threadsafe(submit, apply_target, target, args, kwargs, callback, accept_callback)

    def on_stop(self) -> None:
        """Let running calls end for the grace period, then hand back or end the others. May be called again."""
        if not self._thread.is_alive():
            return
        self._stop_reading()
        draining = asyncio.run_coroutine_threadsafe(self._drain(self._settings.shutdown_grace_s), self._loop)
        while not wait([draining], GIVE_BACK_EVERY_S).done:
            self._give_back()
        draining.result()
        self._watchdog.stop()
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        self._threads.shutdown()
        self.reports.tell()

    def _give_back(self) -> None:
        """Let others have at once what goes back: nobody else here speaks for the channel while the pool stops."""
        self.reports.tell()
        if self._channel is not None and self._channel.holdings.has_news:
            with suppress(*self._channel.connection_errors):  # it is said again when the worker has stopped
                self._channel.settle()

    def end_grace(self) -> None:
        """Let running calls have no more time, while `on_stop` waits for them. May be called on any thread."""
        with suppress(RuntimeError):  # the loop is closed: all have ended
            self._loop.call_soon_threadsafe(self._end_grace)

    def on_terminate(self) -> None:
        """End running calls at once, without a grace period."""
        if self._thread.is_alive():
            self._stop_reading()
            asyncio.run_coroutine_threadsafe(self._drain(0), self._loop).result()

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    @property
    def num_processes(self) -> int:
        """Calls at a time; Celery prefetches this many."""
        return int(self.limit)

    @property
    def running(self) -> int:
        """Calls at the moment."""
        return len(self._tasks)

    def pid_of(self, _call_id: str) -> int:
        """Return the process that a call runs in."""
        return self._pid

    def begin_no_more(self) -> None:
        """Begin with no call any more that has come: what waits to begin goes back."""
        with suppress(TimeoutError):  # a tool blocks the loop
            asyncio.run_coroutine_threadsafe(self._begin_no_more(), self._loop).result(BEGIN_NO_MORE_WITHIN_S)

    async def _begin_no_more(self) -> None:
        if self._channel is not None:  # another broker counts what is given back
            self._threads.begin_no_more(Interruption.SHUTDOWN)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that tools run on, for other work of theirs; None where they run elsewhere."""
        return self._loop

    def _get_info(self) -> dict[str, Any]:
        return {
            "implementation": f"{type(self).__module__}:{type(self).__name__}",
            "max-concurrency": self.limit,
            "processes": [os.getpid()],
            "running": len(self._tasks),
            "max-threads": self._threads.most,
            "hanging-threads": self._threads.hanging,
        }

    # --- on the loop's thread -----------------------------------------------------------------------------------

    def _run_loop(self, running: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._open, running)
        while not self._stops:
            self._run_until_it_stops()
        self._loop.run_until_complete(self._performer.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _run_until_it_stops(self) -> None:
        # Other calls run here too. SystemExit and KeyboardInterrupt come through from tasks and callbacks of a tool's
        # own; whoever awaits such a task gets them as well.
        try:
            self._loop.run_forever()
        except BaseException as error:  # a tool may raise anything
            log.warning("tool_left_the_loop", exc_info=error)

    def _stop(self) -> None:
        self._stops = True
        self._loop.stop()

    def _open(self, running: threading.Event) -> None:
        self._performer = self._new_performer()
        self._watchdog.start()
        running.set()

    def _new_performer(self) -> Performer | ChildPerformer:
        fleet = self.app.toolfleet
        return Performer(self._settings, fleet.tools, self._threads, fleet.interceptors)

    def _start_arrived(self) -> None:
        arrived = self._arrived
        while arrived:
            self._start(arrived.popleft())
        self._started.set()

    def _start(self, request: ToolRequest) -> None:
        delivery = request.delivery
        self._count_arrival(request.task.name, delivery.entry_id, delivery.came_unix_s, is_new=delivery.is_new)
        # watched: it lets nothing pass, and gives its slot back
        self._tasks[request] = self._loop.create_task(self._perform(request))

    def _start_quick(self, quick: QuickRequest) -> None:
        self.reports.add_quick_start(quick)
        self._count_arrival(quick.name, quick.delivery.entry_id, quick.delivery.came_unix_s, is_new=True)
        # watched: it lets nothing pass; its slot is given back when its result is settled, after the task has ended
        self._tasks[quick] = self._loop.create_task(self._performer.quick.perform(quick, self._end_quick))

    def _end_quick(self, quick: QuickRequest, ending: Ending) -> None:
        del self._tasks[quick]
        CALLS.ended(quick.name, ending)
        self.reports.add_quick_end(quick, ending)

    async def _perform(self, request: ToolRequest) -> None:
        started = time.perf_counter()
        ending = Ending.HANDED_BACK
        try:
            ending = await self._performer.perform(request.delivery)
        except asyncio.CancelledError:
            pass  # before the tool began: handed back
        except Exception:  # a pool slot must be given back whatever happens
            ending = Ending.NOT_PERFORMED
            log.exception("call_not_performed", call_id=request.id, tool=request.name)
        finally:
            del self._tasks[request]
            CALLS.ended(request.task.name, ending)
            self.reports.add_end(request, ending, time.perf_counter() - started)

    def _cancel(self, call_id: str) -> None:
        for request, task in self._tasks.items():
            if request.id == call_id:
                # Not before its first step: it would end without having begun.
                self._loop.call_soon(task.cancel, Interruption.REVOKED)

    async def _drain(self, grace_s: float) -> None:
        self._start_arrived()
        await asyncio.sleep(0)  # as above
        if self._tasks and grace_s:
            all_end: asyncio.Future[Any] = asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await asyncio.wait([all_end, self._grace_is_over], timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks.values():
            task.cancel(Interruption.SHUTDOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_WITHIN_S):
                if self._tasks:
                    await asyncio.wait(self._tasks.values())
                await self._performer.drain()

    def _end_grace(self) -> None:
        if not self._grace_is_over.done():
            self._grace_is_over.set_result(None)

    # --- on other threads ---------------------------------------------------------------------------------------

    def _end_blocked(self) -> None:
        """Settle the call that blocks the loop, if it can be told, and end this process: its other calls move."""
        stack = sys._current_frames().get(self._thread.ident or 0)
        log.error(
            "worker_blocked",
            seconds=self._settings.blocked_loop_s,
            calls=[request.id for request in tuple(self._tasks)],
            stack="".join(traceback.format_stack(stack)),
        )
        try:
            self._settle_what_blocks(stack)
        finally:
            os._exit(ExitStatus.FAILED)

    def _settle_what_blocks(self, stack: FrameType | None) -> None:
        while stack is not None and stack.f_code not in _PERFORMING:
            stack = stack.f_back
        if stack is not None:
            request: ToolRequest | QuickRequest = stack.f_locals[_PERFORMING[stack.f_code]]
            effect = request.delivery.effect(request.task.effect)
            failure = blocked(request.name, self._settings.blocked_loop_s, effect)
            request.task.settle_from_outside(request.delivery, failure)

    def _retire_without_threads(self) -> None:
        """Retire: it could run no blocking tool any more."""
        log.error("worker_out_of_threads", threads=self._threads.most)
        self._retire()

    def _retire(self) -> None:
        """Let this worker stop in order, to be replaced."""
        state.should_stop = ExitStatus.FAILED
        self.reports.wake()


_PERFORMING: Final = {AsyncioPool._perform.__code__: "request", QuickCalls.perform.__code__: "quick"}
"""The functions below which a call's tool runs, and under which name each of them has the call."""
