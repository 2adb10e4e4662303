"""The replies that models write in this process, as far as they have come: what no store has yet, for whoever follows.

A reply here is a view and no record: it is void once it is begun anew, and of no interest once it is stored. So is what
running calls say of themselves, which goes to those who ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from toolfleet.orchestrator.doors.http.tail import EventListener, Frame, event_bytes
from toolfleet.orchestrator.run.updates import (
    CallAsks,
    CallProgressed,
    CallYielded,
    ReplyBegan,
    RunUpdate,
    TextArrived,
    ThoughtArrived,
)

OF_CALLS: Final = (CallAsks, CallProgressed, CallYielded)
"""What running calls say of themselves."""


class LiveReply:
    """The reply that a run's model writes now. `hear` is to be told of what happens to the run, and tells news on."""

    def __init__(self, tell_on: Callable[[RunUpdate], None]) -> None:
        self._tell_on = tell_on
        self.turn = 0
        """Which of the run's replies it is; 0 before the first."""
        self.attempt = 0
        """How often it was begun anew."""
        self._came: list[TextArrived | ThoughtArrived] = []
        self._listeners: WeakSet[EventListener] = WeakSet()
        self._of_calls: WeakSet[EventListener] = WeakSet()

    def hear(self, update: RunUpdate) -> None:
        """Take what has come, and wake who follows."""
        if isinstance(update, ReplyBegan):
            self.turn, self.attempt, self._came = update.turn, update.attempt, []  # no news: nothing has been said
        if isinstance(update, TextArrived | ThoughtArrived):
            self._came.append(update)
            for listener in self._listeners:
                listener.wake()
        if isinstance(update, OF_CALLS) and self._of_calls:
            frame = Frame("", event_bytes(update.type, update.model_dump_json().encode()))
            for listener in self._of_calls:
                listener.hear(frame)
        if not isinstance(update, ThoughtArrived):  # as above
            self._tell_on(update)

    def came_since(self, count: int) -> Sequence[TextArrived | ThoughtArrived]:
        """Return what has come of it after so many pieces: what it thinks, and then what it says."""
        return self._came[count:]

    def tell(self, listener: EventListener, *, of_calls: bool = False) -> None:
        """Wake this listener from here on, for as long as somebody holds it, and tell it what running calls say."""
        self._listeners.add(listener)
        if of_calls:
            self._of_calls.add(listener)


class LiveReplies:
    """One for each run that was begun here and is still worked on."""

    def __init__(self) -> None:
        self._of_run: Final[WeakValueDictionary[str, LiveReply]] = WeakValueDictionary()

    def keep(self, run_id: str, reply: LiveReply) -> None:
        """Let others find it; where there is one already, that stays. It is forgotten with its run."""
        self._of_run.setdefault(run_id, reply)

    def of(self, run_id: str) -> LiveReply | None:
        """Return what is known here of the reply of a run; None for one that was begun elsewhere, or has ended."""
        return self._of_run.get(run_id)
