"""Tools that yield: each piece is told of as it comes, and the result is their sum.

Texts are joined; pieces that are declared as anything else make a list. Knows no Redis: whom to tell, the context says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Final

from toolfleet.context import Context

TURN_AFTER: Final = 64
"""Pieces after which others have their turn on the loop: a tool may yield thousands without waiting for anything."""


class Sum:
    """What has been yielded so far. Raises TypeError for a piece that is no text where texts are declared."""

    def __init__(self, context: Context, *, of_texts: bool) -> None:
        self._context = context
        self._of_texts = of_texts
        self._pieces: list[Any] = []
        context.tell_piece(context, -1, None)

    def add(self, piece: Any) -> int:
        """Add a piece, and tell of it. Returns how many there are."""
        if self._of_texts and not isinstance(piece, str):
            raise TypeError(
                f"{self._context.tool} yields texts, and a {type(piece).__name__}: say in its signature what it "
                "yields, such as AsyncIterator[dict[str, int]]"
            )
        self._context.tell_piece(self._context, len(self._pieces), piece)
        self._pieces.append(piece)
        return len(self._pieces)

    @property
    def total(self) -> Any:
        """The sum."""
        return "".join(self._pieces) if self._of_texts else self._pieces


async def summed(pieces: AsyncGenerator[Any, None], context: Context, *, of_texts: bool) -> Any:
    """Return the sum of what an async tool yields. The generator is closed however that ends."""
    total = Sum(context, of_texts=of_texts)
    async with aclosing(pieces):
        async for piece in pieces:
            if total.add(piece) % TURN_AFTER == 0:
                await asyncio.sleep(0)
    return total.total


def summed_blocking(pieces: Generator[Any, None, Any], context: Context, *, of_texts: bool) -> Any:
    """The same of a plain one, which ends early once nobody wants it any more."""
    total = Sum(context, of_texts=of_texts)
    with closing(pieces):
        for piece in pieces:
            total.add(piece)
            if context.cancelled:
                break
    return total.total
