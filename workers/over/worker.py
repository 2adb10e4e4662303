"""The worker: announces its tools, polls for calls, runs so many at a time, and lets them end when it stops."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.errors import ToolfleetError
from toolfleet.interceptors import ToolInterceptor
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.settings import Settings
from toolfleet.signs_of_life import EVERY_S, LEASE, LOOP, SignOfLife
from toolfleet.tool import Tool
from toolfleet.work import (
    MAX_CALLS,
    Ack,
    Acked,
    Announce,
    Announced,
    Beaten,
    Offer,
    Poll,
    Polled,
    Release,
    Released,
    ResultSaid,
    Settled,
)
from toolfleet.workers.over import figures
from toolfleet.workers.over.client import KeyRefused, NotAnnounced, NotServed, Stale, TooLarge, Unreachable, WorkClient
from toolfleet.workers.over.heart import Heart
from toolfleet.workers.over.reports import Reports
from toolfleet.workers.over.running import GoesBack, Runner
from toolfleet.workers.over.tracing import Spans
from toolfleet.workers.perform.endings import Ending, Interruption
from toolfleet.workers.tool.threads import ToolThreads

log = FactLog("toolfleet.workers")

POLL_S: Final = 25.0
"""Shorter than proxies wait for an answer, most of which give up after 30 or 60 s."""

FIRST_WITHIN_S: Final = 10.0
"""How long the API may be away when the worker starts."""

LAST_WORDS_S: Final = 5.0
"""How long what is said at the end may take."""

STOPPED_BY: Final = (signal.SIGTERM, signal.SIGINT)


class OverWorker:
    """One worker over HTTPS."""

    def __init__(
        self,
        address: str,
        key: str,
        name: str,
        tools: Mapping[str, Tool[..., Any]],
        *,
        concurrency: int,
        settings: Settings,
        interceptors: tuple[ToolInterceptor, ...] = (),
    ) -> None:
        self._name = name
        self._tools = tools
        self._concurrency = concurrency
        self._settings = settings
        self._started_unix_s = time.time()
        self._lease_s = settings.lease_s
        self._client = WorkClient(address, key)
        self._held: dict[str, str] = {}
        """The attempts, by their calls."""
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._stops, self._stops_at_once = asyncio.Event(), asyncio.Event()
        self._has_room = asyncio.Event()
        self._error: ToolfleetError | None = None
        self._threads = ToolThreads(concurrency, self._hangs)
        self._reports = Reports(self._client, self._held)
        self._runner = Runner(
            tools,
            self._threads,
            limits=settings.argument_limits,
            interceptors=interceptors,
            reports=self._reports,
            spans=Spans(name),
        )
        self._turns = SignOfLife(settings.alive_dir, LOOP)
        self._loop = asyncio.get_running_loop()
        self._heart = Heart(
            address,
            key,
            name,
            held=lambda: dict(self._held),
            on_beaten=self._heed,
            on_forgotten=self._announce_soon,
            sign=SignOfLife(settings.alive_dir, LEASE),
        )

    async def serve(self, when_ready: Callable[[], None], when_stopping: Callable[[int, float], None]) -> None:
        """Serve until SIGTERM or Ctrl-C; a second one ends it at once. Raises KeyRefused, NotServed, Unreachable.

        `when_stopping` is told how many calls are running then, and how many seconds they have.
        """
        for number in STOPPED_BY:
            self._loop.add_signal_handler(number, self.stop)
        reporting = asyncio.create_task(self._reports.run())  # watched: cancelled below; it only sends
        try:
            announced = await self._announce(for_s=FIRST_WITHIN_S)
            self._client.max_body_bytes, self._lease_s = announced.max_body_bytes, announced.lease_s
            self._heart.every_s = announced.heartbeat_s
            self._heart.start()
            tools, slots = self._tools, self._concurrency
            figures.serve_figures(self._settings, self._name, tools, slots=slots, running=lambda: len(self._running))
            self._show_life()
            when_ready()
            await self._poll_until_stopped()
            grace_s = min(announced.grace_s, self._settings.shutdown_grace_s)
            when_stopping(len(self._calls), grace_s)
            await self._let_end(grace_s)
            await self._heart.stop()
            await self._leave()
        finally:
            reporting.cancel()
            await self._client.aclose()
            self._threads.shutdown()
            for number in STOPPED_BY:
                self._loop.remove_signal_handler(number)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End in order; again, at once."""
        (self._stops_at_once if self._stops.is_set() else self._stops).set()

    def _show_life(self) -> None:
        """Show that this event loop turns, for as long as it does."""
        self._turns.show()
        self._loop.call_later(EVERY_S, self._show_life)

    # --- taking calls -------------------------------------------------------------------------------------------

    async def _poll_until_stopped(self) -> None:
        polling = asyncio.create_task(self._poll_for_ever())  # watched: awaited below
        stopping = asyncio.create_task(self._stops.wait())  # watched: awaited below
        await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (polling, stopping):
            task.cancel()
        ended, _ = await asyncio.gather(polling, stopping, return_exceptions=True)
        if isinstance(ended, ToolfleetError):
            self._error = ended
        elif isinstance(ended, Exception):
            raise ended

    async def _poll_for_ever(self) -> None:
        while True:
            free = self._concurrency - len(self._calls)
            if free <= 0:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            wanted = Poll(worker=self._name, calls=min(free, MAX_CALLS), wait_s=POLL_S)
            try:
                polled = await self._client.say("poll", wanted, Polled, for_s=None, waits_s=POLL_S)
            except NotAnnounced:
                await self._announce(for_s=None)
                continue
            for offer in polled.calls:
                call = asyncio.create_task(self._perform(offer))  # watched: its end is noted, and it raises nothing
                self._calls.add(call)
                call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._has_room.set()
        if not call.cancelled() and (error := call.exception()) is not None:
            log.error("call_not_performed", exc_info=error)

    async def _announce(self, *, for_s: float | None) -> Announced:
        said = Announce(
            worker=self._name,
            tools=tuple(tool.spec for _, tool in sorted(self._tools.items())),
            sources={name: tool.source.partition(" ")[0] for name, tool in self._tools.items()},
            concurrency=self._concurrency,
            started_unix_s=self._started_unix_s,
        )
        return await self._client.say("announce", said, Announced, for_s=for_s)

    def _announce_soon(self) -> None:
        """Announce again if that is not on its way: the next poll would, but there may be no room for one."""
        if not self._stops.is_set() and not self._has_room.is_set():
            announcing = asyncio.ensure_future(self._announce(for_s=LAST_WORDS_S))  # watched: its error is noted
            announcing.add_done_callback(lambda done: done.cancelled() or done.exception())

    # --- one call -----------------------------------------------------------------------------------------------

    async def _perform(self, offer: Offer) -> None:
        told, came_unix_s = offer.call, time.time()
        if told.tool not in self._tools or self._stops.is_set():
            await self._try_to_release(Release(worker=self._name, offers=(offer.offer,)))
            return
        try:
            # For as long as its lease would hold: where an answer was lost, the attempt has begun, and only this worker
            # can go on with it.
            acked = await self._client.say("ack", Ack(offer=offer.offer), Acked, for_s=self._lease_s)
        except (Stale, Unreachable, KeyRefused) as error:
            log.warning("call_not_begun", call_id=told.call_id, error=str(error))
            return
        self._held[told.call_id] = acked.attempt
        figures.count_begun(told.tool)
        running = asyncio.create_task(self._runner.run(told, came_unix_s))  # watched: awaited below
        self._running[told.call_id] = running
        try:
            await asyncio.wait({running})
            ending = await self._conclude(told.call_id, acked.attempt, running.result(), told.deadline_in_s)
            CALLS.ended(told.tool, ending)
        finally:
            self._running.pop(told.call_id, None)
            self._held.pop(told.call_id, None)

    async def _conclude(
        self, call_id: str, attempt: str, result: Returned | Failed | GoesBack, deadline_in_s: float
    ) -> Ending:
        """Tell the API what has come of a call. Returns as what it counts here."""
        if isinstance(result, GoesBack):
            await self._try_to_release(
                Release(worker=self._name, attempts=(attempt,), after_s=min(result.after_s, 24 * 3600.0))
            )
            return Ending.PASSED_ON if result.after_s else Ending.HANDED_BACK
        began_s = time.perf_counter()
        for_s = LAST_WORDS_S if self._stops_at_once.is_set() else max(60.0, deadline_in_s)
        try:
            await self._client.say("result", ResultSaid(attempt=attempt, result=result), Settled, for_s=for_s)
        except (TooLarge, NotServed) as error:
            kept = Failed(kind=FailureKind.ERROR, message=f"the tool has run, and its result was refused: {error}")
            with suppress(ToolfleetError):
                await self._client.say("result", ResultSaid(attempt=attempt, result=kept), Settled, for_s=for_s)
            return Ending.FAILED
        except ToolfleetError as error:
            log.warning("late_result_dropped", call_id=call_id, error=str(error))
            return Ending.TAKEN_OVER
        CALLS.settled.observe(time.perf_counter() - began_s)
        return figures.ending_of(result)

    def _heed(self, beaten: Beaten) -> None:
        """End what nobody wants, and what is another's by now."""
        for call_id in (*beaten.cancelled, *beaten.lost):
            if (running := self._running.get(call_id)) is not None and call_id in self._held:
                running.cancel(Interruption.REVOKED)
        for call_id in beaten.lost:
            running = self._running.get(call_id)
            # One that has ended is no longer its worker's once its result has arrived, which the answer will say.
            if self._held.pop(call_id, None) is not None and running is not None and not running.done():
                log.warning("call_lost", call_id=call_id)

    # --- the end ------------------------------------------------------------------------------------------------

    async def _let_end(self, grace_s: float) -> None:
        """Return when the running calls have ended, or were given back."""
        self._threads.begin_no_more(Interruption.SHUTDOWN)
        at_once = asyncio.create_task(self._stops_at_once.wait())  # watched: cancelled below
        ends_s = self._loop.time() + grace_s
        while self._calls and not at_once.done() and (left_s := ends_s - self._loop.time()) > 0:
            await asyncio.wait({*self._calls, at_once}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
        self._stops_at_once.set()
        for running in self._running.values():
            running.cancel(Interruption.SHUTDOWN)
        if self._calls:
            await asyncio.wait(self._calls, timeout=2 * LAST_WORDS_S)

    async def _leave(self) -> None:
        await self._try_to_release(Release(worker=self._name, attempts=tuple(self._held.values()), leaves=True))

    async def _try_to_release(self, said: Release) -> None:
        try:
            await self._client.say("release", said, Released, for_s=LAST_WORDS_S)
        except ToolfleetError as error:
            if said.attempts or said.offers:
                log.warning("calls_not_given_back", error=str(error))

    def _hangs(self) -> None:
        """Threads hang in calls that were given up, and others can have none: nothing more can be done here."""
        log.error("all_threads_hang", remedy="the worker ends; start it again")
        self._stops.set()
