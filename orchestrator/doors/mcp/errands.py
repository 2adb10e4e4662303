"""Work that outlives the request it came with, for a moment: cancellations above all. Waited for at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

DRAIN_S: Final = 5.0


class Errands:
    """Runs errands beside the requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, errand: Coroutine[Any, Any, None]) -> None:
        """Do this beside; nobody hears how it ends."""
        task = asyncio.create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Let them end, for a moment; then stop them."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=DRAIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
