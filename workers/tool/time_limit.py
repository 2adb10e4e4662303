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

    __slots__ = (
        "_cancelling",
        "_ends_s",
        "_has_begun",
        "_kept_s",
        "_left_s",
        "_standing",
        "_stands_until_it_begins",
        "_task",
        "_timer",
        "expired",
        "seconds",
        "waits_to_begin",
    )

    def __init__(self, seconds: float, *, is_set: bool = True) -> None:
        """One that is not set lets the block run on until `set` is called."""
        self.seconds = seconds
        self.expired = False
        """Whether the time was up before the block had ended."""
        self.waits_to_begin = False
        """Whether what it is for has not begun, as it waits for a thread."""
        self._has_begun = False
        self._standing = 0
        self._stands_until_it_begins = False
        self._kept_s = self._ends_s = 0.0
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

    def _move(self, left_s: float) -> None:
        """Let the block have so much time from now, whatever was said before. One whose time is up does not mind."""
        if self.expired:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.set(left_s)

    def stand_still(self, at_most_s: float) -> None:
        """Let no time pass until `go_on`, but end the block after so long all the same. May be said several times."""
        if not self._standing and self._task is not None:
            now_s = self._task.get_loop().time()
            # One without a timer has begun a moment ago.
            self._kept_s = self._timer.when() - now_s if isinstance(self._timer, asyncio.TimerHandle) else self.seconds
            self._ends_s = now_s + at_most_s
            self._move(at_most_s)
        self._standing += 1

    def go_on(self) -> None:
        """Let time pass as before, once as often as it was said to stand still."""
        self._standing -= 1
        if not self._standing and self._task is not None:
            self._move(min(self._ends_s - self._task.get_loop().time(), self._kept_s))

    def wait_to_begin(self) -> None:
        """Say that what it is for waits for a thread, which counts only before the first begins."""
        self.waits_to_begin = not self._has_begun

    def stand_until_it_begins(self, at_most_s: float) -> None:
        """Let no time pass until what waits begins."""
        if self.waits_to_begin and not self._stands_until_it_begins:
            self._stands_until_it_begins = True
            self.stand_still(at_most_s)

    def begin(self) -> bool:
        """Say that what it is for begins. Returns whether it does so for the first time."""
        is_first, self._has_begun, self.waits_to_begin = not self._has_begun, True, False
        if self._stands_until_it_begins:
            self._stands_until_it_begins = False
            self.go_on()
        return is_first

    def begin_after_all(self) -> None:
        """Say that what was to begin for the first time has not."""
        self._has_begun, self.waits_to_begin = False, True

    def cancel(self, why: object) -> None:
        """Cancel the task of the block."""
        if self._task is not None:
            self._task.cancel(why)

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


def clock_of(context: Context | None) -> TimeLimit | None:
    """Return the clock of a call's attempt, where it has one."""
    return None if context is None else cast("TimeLimit | None", context.clock)


def has_begun(context: Context) -> bool:
    """Return whether a call's attempt may have had an effect: it is not one that waits for a thread."""
    clock = clock_of(context)
    return clock is None or not clock.waits_to_begin


@contextmanager
def standing_still(context: Context) -> Iterator[None]:
    """Let the clock of a call's attempt stand still for the body, but for the deadline of the call."""
    clock = clock_of(context)
    if clock is None:
        yield
        return
    clock.stand_still(context.time_left_s)
    try:
        yield
    finally:
        clock.go_on()
