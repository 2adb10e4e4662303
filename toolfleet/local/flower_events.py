"""How Flower hears of calls without slowing them: many events at a time, and of a burst a part now and then.

Flower takes in each event by a callback of its own on its loop. Two events tell of a call, and to take them in costs
about what the call costs its worker; in a burst they would take a core from the calls that they tell of. So it goes
last, until more wait than it may keep: a fleet that is always busy is slowed down rather than told of wrongly.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

import flower.app
from flower.events import Events

from toolfleet.local.session_niceness import set_session_niceness
from toolfleet.logs import FactLog

log = FactLog("toolfleet")

WORK_S: Final = 0.005
"""So long at a time events are taken in, and pages wait for it."""

REST_S: Final = 0.02
"""How long the loop then does without while more come in, so that a burst has its processor."""

CALM_S: Final = 0.2
"""Once none has come in for so long, the rest are taken in at once. Workers send theirs every 50 ms."""

MOST_WAITING: Final = 50_000
"""With more that wait there is no rest, and Flower goes last no more until half of them are taken in."""

LAST: Final = 19
"""The nice value of who gets the processor when nobody else wants it."""

STOP_WITHIN_S: Final = 1.0
"""How long the last ones may take; whoever stops Flower waits for some seconds."""


class PatientEvents(Events):  # type: ignore[misc]  # flower ships no types
    """Flower's events, in the order in which they came."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: deque[dict[str, Any]] = deque()
        self._is_due = False
        """Whether the loop is to take in more. Whoever changes it looks for events that wait afterwards."""
        self._goes_last = False
        self._came_s = 0.0
        """When the last one came, by the monotonic clock."""

    def on_event(self, event: dict[str, Any]) -> None:
        """Take note of an event. Called on the thread that reads them."""
        self._waiting.append(event)
        self._came_s = time.monotonic()
        if not self._is_due:
            self._is_due = True
            self.io_loop.add_callback(self._take_some)

    def stop(self) -> None:
        """Take in what waits, where it is saved, as far as there is time: it must come to be saved."""
        until_s = time.monotonic() + STOP_WITHIN_S
        for _ in range(len(self._waiting)) if self.persistent else ():
            if time.monotonic() > until_s:
                break
            try:
                self.state.event(self._waiting.popleft())
            except Exception:  # as its loop would, one that Flower cannot take
                log.exception("event_not_taken")
        super().stop()

    def _take_some(self) -> None:
        until_s = time.monotonic() + WORK_S
        self._mind_the_others()
        try:
            while self._waiting and time.monotonic() < until_s:
                self.state.event(self._waiting.popleft())
        finally:  # one that Flower cannot take is logged by its loop, and holds up no other
            self._is_due = False
            if self._waiting:
                self._is_due = True
                self.io_loop.call_later(self._rest_s(), self._take_some)

    def _mind_the_others(self) -> None:
        waiting = len(self._waiting)
        may_go_last = waiting < (MOST_WAITING if self._goes_last else MOST_WAITING // 2)
        if may_go_last != self._goes_last and set_session_niceness(LAST if may_go_last else 0):
            self._goes_last = may_go_last

    def _rest_s(self) -> float:
        more_come = time.monotonic() - self._came_s < CALM_S
        return REST_S if more_come and len(self._waiting) < MOST_WAITING else 0.0


def take_events_patiently() -> None:
    """Have Flower take in events so. Before Flower starts."""
    flower.app.Events = PatientEvents
