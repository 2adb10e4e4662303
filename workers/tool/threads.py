"""The threads that blocking tools run on. A thread cannot be stopped, so those that nobody waits for are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

TOOL_THREAD: Final = "tool"
"""How the names of these threads begin."""


class ToolThreads(ThreadPoolExecutor):
    """Threads, which know how many of them are held by calls that were given up. Any thread may ask or tell."""

    def __init__(self, count: int, when_all_hang: Callable[[], None]) -> None:
        """`when_all_hang` is called once, on some thread, when none is left for new calls."""
        super().__init__(count, thread_name_prefix=TOOL_THREAD)
        self.count = count
        self._when_all_hang = when_all_hang
        self._hanging: set[Future[Any]] = set()
        self._counting = threading.Lock()

    @property
    def hanging(self) -> int:
        """Threads whose call was given up and that still run."""
        return len(self._hanging)

    def give_up(self, running: Future[Any]) -> None:
        """Nobody waits any more for what runs on one of the threads."""
        with self._counting:
            self._hanging.add(running)
            all_hang = len(self._hanging) == self.count
        running.add_done_callback(self._ended)
        if all_hang:
            self._when_all_hang()

    def _ended(self, future: Future[Any]) -> None:
        with self._counting:
            self._hanging.discard(future)
