"""A stage that tools enter and a test directs: it sees every start, says what happens next, and sees every end."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

WAIT_S = 30


class Actor:
    """One start of one tool. What it knows of itself is in `seen`."""

    def __init__(self, seen: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen = seen
        self._reader = reader
        self._writer = writer

    @property
    def pid(self) -> int:
        return self.seen["pid"]

    @property
    def call_id(self) -> str:
        return self.seen["call_id"]

    def returns(self, value: Any = "done") -> None:
        self._direct({"return": value})

    def fails(self, reason: str) -> None:
        """With a ToolError, where the tool is a coroutine."""
        self._direct({"fail": reason})

    def progresses(self, fraction: float, message: str) -> None:
        self._direct({"progress": [fraction, message]})

    def _direct(self, order: dict[str, Any]) -> None:
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def leaves(self) -> str:
        """The tool's last word: "returned", "cancelled", or nothing when its process was killed."""
        async with asyncio.timeout(WAIT_S):
            return (await self._reader.read()).decode().strip()

    def close(self) -> None:
        self._writer.close()


class Stage:
    """Where tools given `path` are directed from."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.actors: list[Actor] = []
        self._entered: asyncio.Queue[Actor] = asyncio.Queue()

    async def enters(self) -> Actor:
        """The next start of a tool."""
        async with asyncio.timeout(WAIT_S):
            return await self._entered.get()

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        actor = Actor(json.loads(await reader.readline()), reader, writer)
        self.actors.append(actor)
        self._entered.put_nowait(actor)


@asynccontextmanager
async def stage_of_its_own() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # elsewhere a socket's path may be too long
        stage = Stage(str(Path(folder, "s")))
        server = await asyncio.start_unix_server(stage.welcome, stage.path)
        try:
            yield stage
        finally:
            server.close()
            for actor in stage.actors:
                actor.close()
