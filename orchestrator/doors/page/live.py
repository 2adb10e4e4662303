"""What is new, sent to the browsers that show it: pieces of the page, rendered once for all who see the same.

One reading of each run, or call, per server, when its history has news and, while calls are open, every few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import orjson
from fastapi import Request

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.access import may_still
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.tail import event_bytes
from toolfleet.supervision import failed

log = FactLog("toolfleet.page")

AT_MOST_EVERY_S: Final = 0.5
"""How often one run is rendered anew, however much happens to it."""

OPEN_CALLS_EVERY_S: Final = 3.0
"""How often calls are looked at of which the history says nothing: their progress, their place in the queue."""

READING_AT_ONCE: Final = 2
"""Runs that are read and rendered at once. Each reading is followed by a rest of the same length: five hundred open
runs must not be all that this server and its Redis do. They are shown later then."""

STILL_EVERY_S: Final = 2.0
"""How often it is asked whether a listener's key still opens this."""

Pieces = dict[str, str]
"""Parts of a page by the id of the element that each replaces."""


Render = Callable[[], Coroutine[Any, Any, tuple[Pieces, bool]]]
"""Renders the pieces of a run, and tells whether there will be others."""


class LiveRun:
    """One run that somebody has open: its newest pieces, and who waits for newer ones."""

    def __init__(self) -> None:
        self.pieces: Pieces = {}
        self.version = 0
        self.versions: dict[str, int] = {}
        self.news = asyncio.Event()
        """Set when it should be looked at."""
        self.looks = 0
        """How many have begun."""
        self.changed = asyncio.Condition()
        self.viewers = 0
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._looked = 0
        """The last one of which the pieces were taken."""

    async def look(self, render: Render) -> None:
        """Render it, and wake those who wait."""
        self.looks = number = self.looks + 1
        pieces, self.is_over = await render()
        fresh = {name: text for name, text in pieces.items() if self.pieces.get(name) != text}
        if fresh:
            self.version += 1
            self.versions |= dict.fromkeys(fresh, self.version)
            self.pieces |= fresh
        self._looked = number
        async with self.changed:
            self.changed.notify_all()

    async def next_look(self) -> None:
        """Return when it was looked at, which begins after this; what is over does not change."""
        number = self.looks + 1
        self.news.set()
        async with self.changed:
            while self._looked < number and not self.is_over:
                await self.changed.wait()

    def since(self, version: int) -> Pieces:
        """Return the pieces that are newer than a version."""
        return {name: self.pieces[name] for name, at in self.versions.items() if at > version}


class LiveRuns:
    """The runs that are open in browsers, and the calls, each read once."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._open: dict[tuple[str, str, bool], LiveRun] = {}
        self._reading = asyncio.Semaphore(READING_AT_ONCE)

    @property
    def runs(self) -> int:
        """How many are open, those twice that are shown with and without payloads."""
        return len(self._open)

    async def follow(
        self, run_id: str, *, call_id: str = "", with_payloads: bool, render: Render, is_of_run: bool = True
    ) -> AsyncGenerator[Pieces, None]:
        """Yield how a run, or a call of it, stands now, and then what has changed, until there is nothing more.

        What is not of a run (`is_of_run`) has a name of its own in the place of its id, and is looked at now and then.
        """
        async with self._opened(run_id, call_id, render, with_payloads=with_payloads, is_of_run=is_of_run) as live:
            # What others were shown may be older than the page that this one has, and show as open what was decided.
            await live.next_look()
            version = 0
            while True:
                async with live.changed:
                    while live.version <= version and not live.is_over:
                        await live.changed.wait()
                pieces, version = live.since(version), live.version
                if pieces:
                    yield pieces
                elif live.is_over:
                    return

    @asynccontextmanager
    async def _opened(
        self, run_id: str, call_id: str, render: Render, *, with_payloads: bool, is_of_run: bool
    ) -> AsyncIterator[LiveRun]:
        name = run_id, call_id, with_payloads
        live = self._open.get(name)
        if live is None:
            live = self._open[name] = LiveRun()
            keeping = self._keep(run_id if is_of_run else "", live, render)
            live.task = asyncio.create_task(keeping)  # watched: cancelled with its last viewer
        live.viewers += 1
        try:
            yield live
        finally:
            live.viewers -= 1
            if live.viewers == 0:
                self._open.pop(name, None)
                if live.task is not None:
                    live.task.cancel()

    async def _keep(self, run_id: str, live: LiveRun, render: Render) -> None:
        """Render a run whenever there is news of it, and now and then while calls are open."""
        news = live.news
        listening = asyncio.create_task(self._listen(run_id, news))  # watched: cancelled below
        try:
            while not live.is_over:
                news.clear()
                try:
                    async with self._reading:
                        began_s = time.perf_counter()
                        await live.look(render)
                        await asyncio.sleep(time.perf_counter() - began_s)
                except ToolfleetError as error:
                    log.info("run_not_shown", run_id=run_id, error=type(error).__name__)
                except Exception as error:  # noqa: BLE001  # a bug of ours: who looks on must not do so for ever
                    failed("page", error, run_id=run_id)
                await asyncio.sleep(AT_MOST_EVERY_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(OPEN_CALLS_EVERY_S):
                        await news.wait()
        finally:
            listening.cancel()

    async def _listen(self, run_id: str, news: asyncio.Event) -> None:
        """Tell of each event of a run, from the server's one reader of all of them; of no run, nothing."""
        if not run_id:
            return
        try:
            async with aclosing(self._door.tail.listen(run_id)) as frames:
                async for _ in frames:
                    news.set()
        except ToolfleetError as error:
            log.info("run_not_followed", run_id=run_id, error=type(error).__name__)
        news.set()


async def told(request: Request, door: Door, pieces: AsyncGenerator[Pieces, None]) -> AsyncGenerator[bytes, None]:
    """Yield pieces as events, for as long as the key of whoever listens opens this."""
    asked_s = time.monotonic()
    async with aclosing(pieces):
        following = anext(pieces, None)
        waiting = asyncio.ensure_future(following)  # watched: awaited or cancelled below
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=STILL_EVERY_S)
                if time.monotonic() - asked_s >= STILL_EVERY_S:
                    asked_s = time.monotonic()
                    if not await may_still(request.scope, door):
                        yield event_bytes("signed-out", b"{}")
                        return
                if not done:
                    continue
                found = waiting.result()
                if found is None:
                    yield event_bytes("over", b"{}")
                    return
                yield event_bytes("pieces", orjson.dumps(found))
                waiting = asyncio.ensure_future(anext(pieces, None))  # watched: as above
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
