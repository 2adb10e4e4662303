"""The calls that groups wait for, no more of them at once than there is room for.

Of a call it is kept only what it takes to end it, once for all that began to wait together: hundreds of thousands may
wait, and each object of its own is one more that garbage passes look at, and one more that is cold when its result
comes. Knows no Redis.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from toolfleet.calls import ToolCall
from toolfleet.orchestrator.fleet.barrier import Barrier


class Expectation(NamedTuple):
    """What holds of a call that a group waits for. Calls share one that began to wait within the same tick."""

    tool: str
    deadline_unix_s: float
    barrier: Barrier
    since_s: float
    look_tick: int
    """When it is looked up next: what `LookUps` has of it for another tick counts no more."""


class ExpectedCalls:
    """Expected calls by their ids. For one event loop."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most = at_most
        self._calls: dict[str, Expectation] = {}
        self._newest: Expectation | None = None
        """What calls that come next may share; nobody keeps a barrier by it that is done with."""
        self._turns: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    @property
    def barriers(self) -> set[Barrier]:
        """Where the results are awaited."""
        return {expected.barrier for expected in self._calls.values()}

    def add(self, call: ToolCall, barrier: Barrier, *, since_s: float, look_tick: int) -> None:
        """Expect a call. Whether there is room for it, `is_full` tells."""
        barrier.add(call.call_id)
        newest = self._newest
        if (
            newest is None
            or newest.barrier is not barrier
            or newest.look_tick != look_tick
            or newest.deadline_unix_s != call.deadline_unix_s
            or newest.tool != call.tool
        ):
            newest = self._newest = Expectation(call.tool, call.deadline_unix_s, barrier, since_s, look_tick)
        self._calls[call.call_id] = newest

    def get(self, call_id: str) -> Expectation | None:
        """Return what holds of an expected call; None for any other."""
        return self._calls.get(call_id)

    def change(self, call_id: str, expected: Expectation) -> None:
        """Have something else hold of an expected call."""
        self._calls[call_id] = expected
        self._newest = None

    def pop(self, call_id: str) -> Expectation | None:
        """Expect the call no longer; None if it was not expected."""
        expected = self._calls.pop(call_id, None)
        if expected is not None:
            if expected is self._newest:
                self._newest = None
            if self._turns:
                self._call_next()
        return expected

    @property
    def is_full(self) -> bool:
        """Whether a call must be settled before another one may be expected."""
        return len(self._calls) >= self._at_most

    async def room(self) -> None:
        """Return when there is room for another call; who came first mostly goes first."""
        while self.is_full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was called, and leaves its room to the next one
                    self._call_next()
                raise

    def _call_next(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
