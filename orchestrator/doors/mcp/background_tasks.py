"""Background tasks of the MCP server: work that outlives its request for a moment, cancellations above all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

DRAIN_S: Final = 5.0
"""How long the end of the server waits for them."""


class BackgroundTasks:
    """Runs work beside the requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin with this work, and return at once. Nobody hears how it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Let all work end, for a moment; then stop what is left of it."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=DRAIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
