"""Notices when the tools' event loop stands still, and ends the worker rather than let it swallow calls in silence.

A worker whose loop is blocked keeps its lease and answers pings, as both are others' work. Two who look:

- a thread, which can name the call that blocks and settle it. It runs beside Python code that never awaits, but not
  beside code that keeps the interpreter lock;
- `faulthandler`'s timer, which needs no interpreter lock, prints the stacks of all threads and ends the process. It
  waits longer, as there is honest work that keeps the lock for a minute. It goes by the clock: a process that was
  frozen for so long may be ended as it goes on. Its lease has lapsed by then, and its calls are others'.
"""

from __future__ import annotations

import asyncio
import faulthandler
import threading
from collections.abc import Callable
from typing import Final

from toolfleet.signs_of_life import SignOfLife
from toolfleet.supervision import start_thread

LOOK_EVERY_S: Final = 0.5

STDERR: Final = 2
"""By its number: Celery puts a logger in the place of `sys.stderr`."""

UNCHECKED_FACTOR: Final = 3
"""How much longer than the limit code may keep the interpreter lock."""


class Watchdog:
    """Watches one event loop from a thread of its own."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_s: float, on_blocked: Callable[[], None], sign: SignOfLife
    ) -> None:
        """`on_blocked` is called once, on the watchdog's thread, when the loop has stood still for `limit_s`.

        `sign` is shown while it turns.
        """
        self._loop = loop
        self._limit_s = limit_s
        self._on_blocked = on_blocked
        self._sign = sign
        self._beaten = True
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to watch. Called on the loop."""
        self._beat()
        start_thread("watchdog", self._watch)

    def stop(self) -> None:
        """Watch no longer. Called by any thread."""
        self._ended.set()
        faulthandler.cancel_dump_traceback_later()

    def _beat(self) -> None:
        if self._ended.is_set():
            return
        self._beaten = True
        self._sign.show()
        faulthandler.dump_traceback_later(UNCHECKED_FACTOR * self._limit_s, exit=True, file=STDERR)
        self._loop.call_later(LOOK_EVERY_S, self._beat)

    def _watch(self) -> None:
        # In looks, not by the clock: where no thread gets a turn, nothing is known of the loop.
        missed = 0
        while not self._ended.wait(LOOK_EVERY_S):
            missed = 0 if self._beaten else missed + 1
            self._beaten = False
            if missed * LOOK_EVERY_S >= self._limit_s:
                self._on_blocked()
                return
