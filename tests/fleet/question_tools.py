"""Tools that ask people while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

from fleet_tools import _play
from pydantic import BaseModel

from toolfleet import Context, QuestionExpired, tool

Account = Literal["savings", "checking"]


class Seat(BaseModel):
    row: int
    window: bool = False


@tool
async def transfer(ctx: Context) -> list[Any]:
    """Ask twice, and go on from a checkpoint each time."""
    begun = ctx.last_checkpoint or {"attempts": 0}
    ctx.checkpoint({"attempts": begun["attempts"] + 1})
    account = await ctx.ask("Which account?", Account)
    sure = await ctx.ask("Are you sure?", bool, key="sure")
    return [account, sure, begun["attempts"], ctx.attempt]


AT_WORK: list[str] = []


@tool(concurrency=1)
async def transfer_alone(ctx: Context) -> list[Any]:
    """The same for a tool of which one may run at a time. Says how many did."""
    ctx.checkpoint("here")
    account = await ctx.ask("Which account?")
    AT_WORK.append(ctx.call_id)
    await asyncio.sleep(0.2)
    at_work = len(AT_WORK)
    AT_WORK.remove(ctx.call_id)
    return [at_work, account]


@tool(timeout_s=0.4)
async def book(ctx: Context) -> int:
    """Ask without a checkpoint, and with a time limit that stands still meanwhile."""
    await asyncio.sleep(0.3)
    seat = await ctx.ask("Which seat?", Seat)
    return seat.row


@tool(timeout_s=0.4)
async def book_slowly(ctx: Context) -> None:
    """Take too long after the answer."""
    await ctx.ask("Which seat?", Seat)
    await asyncio.sleep(60)


@tool(queue="io")
def book_on_thread(ctx: Context) -> str:
    """Ask from a plain function."""
    return ctx.ask_blocking("Which seat?", {"type": "string", "minLength": 2})


@tool(queue="cpu")
def book_in_process(ctx: Context) -> str:
    """The same, in a process of its own."""
    return ctx.ask_blocking("Which seat?", {"type": "string", "minLength": 2})


@tool
async def impatient(ctx: Context) -> str:
    """Go on without an answer."""
    try:
        return await ctx.ask("Quick?", expires_s=0.2)
    except QuestionExpired as error:
        return f"without: {error}"


@tool
async def impatient_elsewhere(ctx: Context) -> str:
    """The same for one that leaves its worker."""
    ctx.checkpoint("waited")
    try:
        return await ctx.ask("Quick?", expires_s=0.2)
    except QuestionExpired:
        return f"without, after {ctx.last_checkpoint}"


@tool
async def ask_on_loop(ctx: Context) -> None:
    """Block the loop that would have to ask."""
    ctx.ask_blocking("Anybody?")


@tool
async def ask_badly(ctx: Context, schema: Any) -> None:
    """Ask by a schema that is none."""
    await ctx.ask("Anybody?", schema)


# --- tools that yield ------------------------------------------------------------------------------------------------


@tool(read_only=True)
async def recite(words: list[str], stage: str = "") -> AsyncIterator[str]:
    """Yield words, and wait for the stage before the last one."""
    for word in words[:-1]:
        yield word
    if stage:
        await _play(stage)
    yield words[-1]


@tool(queue="io", read_only=True)
def recite_on_thread(words: list[str]) -> Iterator[str]:
    """The same, from a plain function."""
    yield from words


@tool(queue="cpu", read_only=True)
def recite_in_process(words: list[str]) -> Iterator[str]:
    """The same, in a process of its own."""
    yield from words


@tool(read_only=True)
async def squares(below: int) -> AsyncIterator[dict[str, int]]:
    """Yield records."""
    for number in range(below):
        yield {"of": number, "is": number * number}


@tool(read_only=True)
async def mixed() -> AsyncIterator[str]:
    """Yield what is not declared."""
    yield "one"
    yield 2  # type: ignore[misc]  # it is the mistake that is tested


@tool(read_only=True)
async def endless(path: str) -> AsyncIterator[str]:
    """Yield for ever, and say when it is closed."""
    try:
        while True:
            yield "more "
            await asyncio.sleep(0.01)
    finally:
        Path(path).write_text("closed")


@tool(idempotent=True)
async def transfer_again(ctx: Context) -> list[Any]:
    """Ask once, in any attempt, from a checkpoint."""
    ctx.checkpoint("begun")
    return [await ctx.ask("Which account?", Account), ctx.attempt]


@tool(read_only=True)
async def count_out(pieces: int) -> AsyncIterator[str]:
    """Yield many pieces, waiting for nothing."""
    for _ in range(pieces):
        yield "x"
