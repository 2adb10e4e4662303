"""Who ends a tool that does not end by itself: it is told how long what runs now may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Watch(Protocol):
    """Watches one tool at a time, or a function of its author's, from outside of its process."""

    def begin(self, limit_s: float) -> None:
        """Watch what begins now."""
        ...

    def end(self) -> None:
        """Watch no more: it has ended."""
        ...


@contextmanager
def watched(watch: Watch | None, limit_s: float) -> Iterator[None]:
    """Have the body watched, if anybody does."""
    if watch is not None:
        watch.begin(limit_s)
    try:
        yield
    finally:
        if watch is not None:
            watch.end()
