"""The calls that groups wait for, no more of them at once than there is room for.

Of a call it is kept only what it takes to end it: hundreds of thousands may wait. Knows no Redis.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from toolfleet.calls import ToolCall
from toolfleet.orchestrator.fleet.barrier import Barrier


@dataclass(slots=True)
class ExpectedCall:
    """A call that a group waits for."""

    call_id: str
    tool: str
    deadline_unix_s: float
    barrier: Barrier
    since_s: float
    look_tick: int = 0
    """When it is looked up next: what `LookUps` has of it for another tick counts no more."""


class ExpectedCalls:
    """Expected calls by their ids. For one event loop."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most = at_most
        self._calls: dict[str, ExpectedCall] = {}
        self._turns: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[ExpectedCall]:
        return iter(self._calls.values())

    def add(self, call: ToolCall, barrier: Barrier, since_s: float) -> ExpectedCall:
        """Expect a call. Whether there is room for it, `is_full` tells."""
        call_id = call.call_id
        barrier.add(call_id)
        self._calls[call_id] = expected = ExpectedCall(call_id, call.tool, call.deadline_unix_s, barrier, since_s)
        return expected

    def get(self, call_id: str) -> ExpectedCall | None:
        """Return an expected call; None for any other."""
        return self._calls.get(call_id)

    def pop(self, call_id: str) -> ExpectedCall | None:
        """Expect the call no longer; None if it was not expected."""
        call = self._calls.pop(call_id, None)
        if call is not None and self._turns:
            self._call_next()
        return call

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
