"""Hears where calls have come, holds those that are to stand, and lets them go. The other end of `standing`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from tests.faults.cells import Stage


class Director:
    """Listens on one event loop, which nothing may block."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._awaited: set[str] = set()
        self._standing: dict[str, asyncio.StreamWriter] = {}
        self._news = asyncio.Condition()
        self.pids: dict[str, int] = {}
        """The process in which each call stands."""

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[Self]:
        """One that listens at this path."""
        director = cls()
        server = await asyncio.start_unix_server(director._hear, path)
        try:
            yield director
        finally:
            director.release()
            server.close()

    def expect(self, stage: Stage, call_ids: Collection[str]) -> None:
        """Hold these calls, each where it comes to this stage for the first time."""
        self.release()
        self._stage, self._awaited, self.pids = stage, set(call_ids), {}

    async def all_stand(self, within_s: float) -> None:
        """Return when each of them stands, or when it has taken too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait_for(lambda: not self._awaited)

    def release(self) -> None:
        """Let go whoever stands, and hold nobody any more."""
        self._stage = None
        standing, self._standing = self._standing, {}
        for writer in standing.values():
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            line = await reader.readline()
            stage, call_id, pid = json.loads(line) if line else ("", "", 0)  # nothing from who was killed meanwhile
            if stage != self._stage or call_id not in self._awaited:
                writer.close()
                return
            self._awaited.discard(call_id)
            self._standing[call_id], self.pids[call_id] = writer, pid
            async with self._news:
                self._news.notify_all()
