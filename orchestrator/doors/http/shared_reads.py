"""Reads that several who ask for the same share: a thousand listeners of one run cost its store what one costs.

Only a read that has not begun yet is shared, so what everybody gets is no older than their question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, TypeVar

from toolfleet.batcher import Batcher

Asked = TypeVar("Asked", bound=Hashable)
Found = TypeVar("Found")


class SharedReads(Generic[Asked, Found]):
    """Reads some things at once, each for all who had asked for it by then. For one event loop."""

    def __init__(self, read: Callable[[Asked], Coroutine[Any, Any, Found]], *, max_at_once: int) -> None:
        """`read` is called once for each thing that is asked for."""
        self._read = read
        self._unsent: dict[Asked, asyncio.Future[Found | BaseException]] = {}
        self._batcher: Batcher[Asked, Found | BaseException] = Batcher(self._read_all, max_batch=max_at_once)

    async def read(self, asked: Asked) -> Found:
        """Return what `read` returns, or raise what it raises."""
        reading = self._unsent.get(asked)
        if reading is None:
            reading = self._unsent[asked] = self._batcher.add(asked)
        found = await asyncio.shield(reading)  # whoever leaves takes it from nobody else
        if isinstance(found, BaseException):
            raise found
        return found

    async def _read_all(self, asked: Sequence[Asked]) -> Sequence[Found | BaseException]:
        for each in asked:
            self._unsent.pop(each, None)
        found: list[Found | BaseException]
        found = await asyncio.gather(*(self._read(each) for each in asked), return_exceptions=True)
        return found
