"""The rehearsal server on an event loop and a thread of its own: what it computes holds up nobody who asks it.

Knows nothing of questions and replies. Its thread keeps no process alive.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from toolfleet.orchestrator.models.rehearsal.server import RehearsalServer
from toolfleet.supervision import start_thread

THREAD = "rehearsal-model"


class OwnThread:
    """Runs a server from `async with` to its end, on any event loop. Raises what the server raises when it starts."""

    def __init__(self, server: RehearsalServer) -> None:
        self._server = server
        self._listening: Future[None] = Future()
        self._asked_to_stop: Future[None] = Future()
        self._ended: Future[None] = Future()
        for future in (self._listening, self._asked_to_stop, self._ended):
            # Whoever waits for one and is cancelled must not cancel it for the other thread.
            future.set_running_or_notify_cancel()

    async def __aenter__(self) -> Self:
        start_thread(THREAD, self._run, again=False)
        try:
            await asyncio.wrap_future(self._listening)
        except asyncio.CancelledError:
            self._asked_to_stop.set_result(None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asked_to_stop.set_result(None)
        await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if self._listening.done():
                raise
            self._listening.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        async with self._server:
            self._listening.set_result(None)
            await asyncio.wrap_future(self._asked_to_stop)
