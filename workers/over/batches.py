"""What calls have to say at about the same time goes in one request: a small one costs more than what it says.

Whoever speaks alone waits for nothing, and nobody longer than `COLLECT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from toolfleet.work import MAX_CALLS

COLLECT_S: Final = 0.01
"""How long what is said waits for more of it while other requests are on their way."""


class Spoken(NamedTuple):
    """What might be a request of its own."""

    what: str
    body: bytes


class Answer(NamedTuple):
    """What was answered to it."""

    status: int
    headers: Mapping[str, str]
    content: bytes


_Waiting = tuple[Spoken, "asyncio.Future[Answer]"]


class Batches:
    """Collects what is said. For one event loop."""

    def __init__(self, send: Callable[[Sequence[Spoken]], Awaitable[Sequence[Answer]]], *, max_bytes: int) -> None:
        """`send` gives an answer for each, in their order. One batch has at most so many bytes, or one item."""
        self._send = send
        self._max_bytes = max_bytes
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._due: asyncio.Handle | None = None

    async def answer(self, spoken: Spoken) -> Answer:
        """Say it, and return what is answered. Raises what `send` has raised."""
        loop = asyncio.get_running_loop()
        if self._waiting and self._waiting_bytes + len(spoken.body) > self._max_bytes:
            self._go()
        answered: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((spoken, answered))
        self._waiting_bytes += len(spoken.body)
        if len(self._waiting) >= MAX_CALLS:
            self._go()
        elif self._due is None:
            self._due = loop.call_later(COLLECT_S, self._go) if self._sending else loop.call_soon(self._go)
        return await answered

    def _go(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        batch = [each for each in self._waiting if not each[1].done()]  # whoever has left says nothing
        self._waiting, self._waiting_bytes = [], 0
        if batch:
            sending = asyncio.ensure_future(self._send_batch(batch))  # watched: whoever waits hears what it raises
            self._sending.add(sending)
            sending.add_done_callback(self._has_gone)

    def _has_gone(self, sending: asyncio.Task[None]) -> None:
        self._sending.discard(sending)
        if not self._sending:
            self._go()

    async def _send_batch(self, batch: Sequence[_Waiting]) -> None:
        try:
            answers = await self._send([spoken for spoken, _ in batch])
            if len(answers) != len(batch):
                raise ConnectionError(f"{len(answers)} answers came to {len(batch)} requests")
        except asyncio.CancelledError:
            _fail(batch, ConnectionAbortedError("the request was cancelled"))  # not by whoever waits: they say it again
            raise
        except Exception as error:  # noqa: BLE001  # told to whoever waits
            _fail(batch, error)
            return
        for (_, answered), answer in zip(batch, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for _, answered in batch:
        if not answered.done():
            answered.set_exception(error)
