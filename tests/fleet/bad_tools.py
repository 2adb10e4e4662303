"""Tools that harm the worker they run on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from toolfleet import Context, tool


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def leave() -> None:
    sys.exit("a tool's own end")


async def interrupt() -> None:
    raise KeyboardInterrupt


@tool(read_only=True)
async def leaves_in_a_task() -> str:
    """End the process from a task of its own."""
    leaving = asyncio.create_task(leave())
    await asyncio.sleep(0.2)
    return f"still here, {leaving.done()}"


@tool(read_only=True)
async def leaves_in_a_group() -> None:
    """End the process from a group of tasks."""
    async with asyncio.TaskGroup() as group:
        group.create_task(leave())
        group.create_task(asyncio.sleep(5))


@tool(read_only=True)
async def leaves_in_a_callback() -> str:
    """End the process from a callback of the loop."""
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0.2)
    return "still here"


@tool(read_only=True)
async def interrupts_in_a_task() -> str:
    """Raise what Ctrl-C raises, in a task of its own."""
    interrupting = asyncio.create_task(interrupt())
    await asyncio.sleep(0.2)
    return f"still here, {interrupting.done()}"


@tool(read_only=True)
async def stops_the_loop() -> str:
    """Stop the loop it runs on."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.2)
    return "still here"


@tool(read_only=True)
async def unspeakable() -> None:
    """Raise what cannot be said."""
    raise UnspeakableError


@tool(read_only=True, queue="io")
def stops_an_iteration() -> Any:
    """Raise StopIteration from a plain function."""
    return next(iter(()))


@tool(read_only=True)
async def echo(value: int) -> int:
    """Give back what came."""
    return value


@tool
async def blocks_for_ever(path: str) -> None:
    """Begin, and never give the loop back."""
    with Path(path).open("a") as file:
        file.write("begun\n")
    while True:
        pass


@tool(read_only=True)
async def waits(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():  # another process makes it
        await asyncio.sleep(0.05)
    return "waited"


@tool(read_only=True, queue="io", timeout_s=0.5)
def hangs(ctx: Context) -> None:
    """Hang on a thread, whatever it is told."""
    del ctx
    threading.Event().wait()


@tool(queue="io", timeout_s=0.5)
def writes_late(path: str) -> None:
    """Have the effect when nobody waits for it any more."""
    time.sleep(1.5)
    Path(path).write_text("written")


@tool(read_only=True)
async def kills_its_worker() -> None:
    """End the process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool(read_only=True)
async def takes_a_moment(seconds: float) -> str:
    """Be at work for a moment."""
    await asyncio.sleep(seconds)
    return "done"
