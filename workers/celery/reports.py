"""What Celery is told of calls that the tools' loop has taken in: late, and many at once, on Celery's own thread.

Celery's records are that thread's: inspect, revoke, statistics and events read and change them there. To wake it for
each call would cost more than the call. It looks here whenever it turns, and before each control command; it is woken
for calls that run on, and where events tell somebody of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kombu.asynchronous import Hub

from toolfleet.workers.celery.request import ToolRequest

REPORT_WITHIN_S: Final = 0.05
"""How long Celery may not know of a call that runs on."""

MAX_UNTOLD: Final = 100
"""Calls that wait to be told of: each holds its message."""


class Reports:
    """Carries requests from the tools' loop to Celery's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_busy: Callable[[], bool]) -> None:
        """`is_busy` says, on the loop, whether any call runs."""
        self._loop = loop
        self._is_busy = is_busy
        self._untold: deque[ToolRequest] = deque()
        self._hub: Hub | None = None
        self._is_due = False

    def register(self, hub: Hub) -> None:
        """Take Celery's event loop, as its thread has it."""
        self._hub = hub
        hub.on_tick.add(self.tell)

    def add(self, request: ToolRequest) -> None:
        """Have Celery told soon that a call has started or ended. Called on the tools' loop."""
        self._untold.append(request)
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(REPORT_WITHIN_S, self._wake_if_needed)
        # Another broker is told by Celery's thread of a message, and may bring no further one before.
        if len(self._untold) == MAX_UNTOLD or not request.delivery.stream:
            self.wake()

    def wake(self) -> None:
        """Have Celery's thread look here. Called on any thread."""
        if self._hub is not None:
            self._hub.call_soon(self.tell)

    def tell(self, *_: Any) -> None:
        """Tell Celery of all that has happened. Called on its thread."""
        while self._untold:
            self._untold.popleft().tell()

    def _wake_if_needed(self) -> None:
        self._is_due = False
        if self._untold and (self._is_busy() or self._untold[-1].tells_events):
            self.wake()
