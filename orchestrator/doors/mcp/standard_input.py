"""Lines from standard input for an event loop that may be told to stop before the other end closes.

The SDK reads in a thread that it waits for, so a signal would only count once the host has said its next word. This
thread is left alone instead: it reads the bare descriptor, and holds no lock that the interpreter's end would want.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from toolfleet.supervision import start_thread

READ_BYTES: Final = 65_536


async def lines_of(descriptor: int) -> AsyncIterator[str]:
    """Yield each line with its end, until the other side closes. What is no UTF-8 is replaced."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        while True:
            some = _read(descriptor)
            try:
                # One piece at a time: a host that writes faster than we answer has to wait.
                asyncio.run_coroutine_threadsafe(arrived.put(some), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended
            if not some:
                return

    start_thread("standard-input", read)
    begun: list[bytes] = []
    while some := await arrived.get():
        *whole, rest = some.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line, b"\n")).decode(errors="replace")
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last.decode(errors="replace")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError:  # a terminal that is gone
        return b""
