"""How long a tool may take: as `asyncio.timeout`, at a third of its cost, which nearly every call pays for nothing.

It can be set late, too: most tools have ended before they need a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, cast

from toolfleet.context import Context


class TimeLimit:
    """Cancels what runs in its block after `seconds`, and raises TimeoutError there. To be entered once, in a task."""

    __slots__ = ("_cancelling", "_left_s", "_task", "_timer", "expired", "seconds")

    def __init__(self, seconds: float, *, is_set: bool = True) -> None:
        """One that is not set lets the block run on until `set` is called."""
        self.seconds = seconds
        self.expired = False
        """Whether the time was up before the block had ended."""
        self._left_s = seconds if is_set else None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.Handle | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is known when the time is up."""
        return self._left_s is not None

    def set(self, left_s: float) -> None:
        """Let the block have so much time from now, or from its beginning. One that has ended does not mind."""
        self._left_s = left_s
        if self._task is not None and self._timer is None:
            loop = self._task.get_loop()
            self._timer = loop.call_later(left_s, self._expire) if left_s > 0 else loop.call_soon(self._expire)

    @property
    def due_s(self) -> float | None:
        """When the time is up, by the clock of the loop; None while that is not known."""
        return self._timer.when() if isinstance(self._timer, asyncio.TimerHandle) else None

    def move(self, left_s: float) -> None:
        """Let the block have so much time from now, whatever was said before. One whose time is up does not mind."""
        if self.expired:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.set(left_s)

    def _expire(self) -> None:
        if self._task is not None:
            self.expired = True
            self._task.cancel()

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit binds tasks only")
        self._task, self._cancelling = task, task.cancelling()
        if self._left_s is not None:
            self.set(self._left_s)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is None or task is None:
            return
        self._timer.cancel()
        # Who else has cancelled the task meanwhile is obeyed.
        if self.expired and task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error


@contextmanager
def standing_still(context: Context) -> Iterator[None]:
    """Let the clock of a call's attempt stand still for the body, but for the deadline of the call."""
    clock, loop = cast("TimeLimit | None", context.clock), asyncio.get_running_loop()
    if clock is None:
        yield
        return
    began_s, deadline_s = loop.time(), loop.time() + context.time_left_s
    # One without a timer yet has run for a moment only.
    left_s = clock.seconds if clock.due_s is None else clock.due_s - began_s
    clock.move(deadline_s - began_s)
    try:
        yield
    finally:
        clock.move(min(deadline_s - loop.time(), left_s))
