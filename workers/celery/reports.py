"""What Celery is told of calls that the tools' loop has taken in: late, many at once, and on Celery's own thread.

Celery's records are that thread's: inspect, revoke, statistics and events read and change them there. To wake it for
each call would cost more than the call. It looks here whenever it turns, which is once a second at least, and before
each control command; where events tell somebody of calls it is woken, for many at a time. Of a common call that has
ended by then it learns no more than events say, and where nobody listens to them, that there was one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from kombu.asynchronous import Hub

from toolfleet.workers.celery.quick_lane import QuickRequest
from toolfleet.workers.celery.request import ToolRequest, count_one, tells_events
from toolfleet.workers.celery.task_events import EndedCall
from toolfleet.workers.perform.endings import Ending

EVENTS_WITHIN_S: Final = 0.05
"""How long events may wait for others to travel with."""

KNOWN_AFTER_S: Final = 0.25
"""Of a common call Celery is told once it has run for so long, when its thread turns next: soon if events are told."""

MAX_UNTOLD: Final = 100
"""Calls of which Celery is still to be told that they ended: each holds its message."""


class Reports:
    """Carries requests from the tools' loop to Celery's thread: each change is one operation on a dict or a deque."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._untold: dict[ToolRequest | QuickRequest, bool] = {}
        """Those that have started or ended since Celery was told."""
        self._young: dict[QuickRequest, bool] = {}
        """Common calls that run and that Celery knows nothing of, the oldest first."""
        self._brief: deque[str] = deque()
        """The tasks of calls that have ended before Celery was told of them."""
        self._ended: deque[EndedCall] = deque()
        """The same, with what events say of such calls."""
        self._consumer: Any = None
        self._hub: Hub | None = None
        self._is_due = False

    def register(self, hub: Hub) -> None:
        """Take Celery's event loop."""
        self._hub = hub
        hub.on_tick.add(self.tell)

    def take_events_of(self, consumer: Any) -> None:
        """Take Celery's consumer, whose common calls these are from now on, and who may send events of them."""
        self._consumer = consumer

    def add_start(self, request: ToolRequest) -> None:
        """Have Celery told that a call has started, unless it ends before. Called on the tools' loop."""
        self._untold[request] = True
        if request.tells_events:
            self._wake_soon()

    def add_quick_start(self, quick: QuickRequest) -> None:
        """Have Celery told that a common call has started, unless it ends soon. Called on the tools' loop."""
        self._young[quick] = True
        if self._tells_events:
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

    def add_quick_end(self, quick: QuickRequest, ending: Ending) -> None:
        """The same of a common call."""
        is_known = quick.end(ending)
        was_young = self._young.pop(quick, False)
        if is_known:
            self._untold[quick] = True
            if self._tells_events:
                self._wake_soon()
            elif len(self._untold) == MAX_UNTOLD:
                self.wake()
        elif was_young and self._tells_events:
            self._ended.append(quick.ended_call(ending, quick.ran_s))
            self._wake_soon()
        elif was_young:
            self._brief.append(quick.name)

    def wake(self) -> None:
        """Have Celery's thread look here. Called on any thread."""
        if self._hub is not None:
            self._hub.call_soon(self.tell)

    def tell(self) -> None:
        """Tell Celery of all that has happened, but for common calls that run since a moment. Called on its thread."""
        self._tell(ran_for_s=KNOWN_AFTER_S)

    def tell_all(self) -> None:
        """Tell Celery of all that has happened. Called on its thread, before somebody asks it."""
        self._tell(ran_for_s=0.0)

    def _tell(self, *, ran_for_s: float) -> None:
        for request in tuple(self._untold):
            if self._untold.pop(request, False):
                request.tell()
        for quick in tuple(self._young):
            if quick.ran_s < ran_for_s:
                break
            if self._young.pop(quick, False) and (ended := quick.tell()):
                self._ended.append(ended)
        while self._brief:
            count_one(self._brief.popleft())
        if self._ended:
            self._tell_of_ended()

    def _tell_of_ended(self) -> None:
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        for call in ended:
            count_one(call.name)
        if self._tells_events:
            self._consumer.event_dispatcher.send_ended(ended)

    @property
    def _tells_events(self) -> bool:
        eventer = None if self._consumer is None else self._consumer.event_dispatcher
        return tells_events(eventer)

    def _wake_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(EVENTS_WITHIN_S, self._wake_now)

    def _wake_now(self) -> None:
        self._is_due = False
        oldest = next(iter(tuple(self._young)), None)
        if self._untold or self._ended or (oldest and oldest.ran_s >= KNOWN_AFTER_S):
            self.wake()
        if oldest and self._tells_events:
            self._wake_soon()
