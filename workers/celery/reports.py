"""What Celery is told of calls that the tools' loop has taken in: late, many at once, and on Celery's own thread.

Celery's records are that thread's: inspect, revoke, statistics and events read and change them there. To wake it for
each call would cost more than the call. It looks here whenever it turns, which is once a second at least, and before
each control command; where events tell somebody of calls it is woken. Of a call that has ended by then, and of which
nobody is told, it learns that there was one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from celery.worker import state
from kombu.asynchronous import Hub

from toolfleet.workers.celery.request import ToolRequest
from toolfleet.workers.perform.endings import Ending

EVENTS_WITHIN_S: Final = 0.05
"""How long events may wait for others to travel with."""

MAX_UNTOLD: Final = 100
"""Calls of which Celery is still to be told that they ended: each holds its message."""


class Reports:
    """Carries requests from the tools' loop to Celery's thread: each change is one operation on a dict or a deque."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._untold: dict[ToolRequest, bool] = {}
        """Those that have started or ended since Celery was told."""
        self._brief: deque[str] = deque()
        """The tasks of calls that have ended before Celery was told of them."""
        self._hub: Hub | None = None
        self._is_due = False

    def register(self, hub: Hub) -> None:
        """Take Celery's event loop."""
        self._hub = hub
        hub.on_tick.add(self.tell)

    def add_start(self, request: ToolRequest) -> None:
        """Have Celery told that a call has started, unless it ends before. Called on the tools' loop."""
        self._untold[request] = True
        if request.tells_events:
            self._wake_soon()

    def add_end(self, request: ToolRequest, ending: Ending, runtime_s: float) -> None:
        """Have Celery told that a call has ended, if it must be. Called on the tools' loop."""
        is_known = request.end(ending, runtime_s)
        if is_known or request.tells_events or not request.delivery.stream:
            self._untold[request] = True
            # Another broker hears of a message from Celery's thread, and may bring no further one before.
            if len(self._untold) == MAX_UNTOLD or not request.delivery.stream:
                self.wake()
            elif request.tells_events:
                self._wake_soon()
        elif self._untold.pop(request, False):
            self._brief.append(request.task.name)

    def wake(self) -> None:
        """Have Celery's thread look here. Called on any thread."""
        if self._hub is not None:
            self._hub.call_soon(self.tell)

    def tell(self) -> None:
        """Tell Celery of all that has happened. Called on its thread."""
        for request in tuple(self._untold):
            if self._untold.pop(request, False):
                request.tell()
        while self._brief:
            state.total_count[self._brief.popleft()] += 1
            state.all_total_count[0] += 1

    def _wake_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(EVENTS_WITHIN_S, self._wake_now)

    def _wake_now(self) -> None:
        self._is_due = False
        self.wake()
