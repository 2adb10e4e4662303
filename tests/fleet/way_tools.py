"""Tools that end in each way that a tool can, at once and after a moment, to see that two ways of a worker agree."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from toolfleet import Context, Failed, FailureKind, Media, Returned, Submitted, ToolError, current_context, tool
from toolfleet.interceptors import ToolInvocation

MOMENT_S = 0.4
"""Longer than the quick way waits before it sets a clock."""


@tool
async def give(value: Any, seconds: float = 0.0) -> Any:
    """Give back what came; an effect."""
    await asyncio.sleep(seconds)
    return value


@tool(idempotent=True)
async def give_again(value: Any) -> Any:
    """The same, which may be repeated."""
    return value


@tool(read_only=True)
async def look(value: Any) -> Any:
    """The same, without an effect."""
    return value


@tool(read_only=True, queue="io")
def think(value: Any) -> Any:
    """The same, on a thread."""
    time.sleep(0.01)
    return value


@tool
async def stumble(kind: str, seconds: float = 0.0) -> Any:
    """Raise, or return what is no plain value."""
    await asyncio.sleep(seconds)
    match kind:
        case "object":
            return object()
        case "failed":
            return Failed(kind=FailureKind.DENIED, message="not today")
        case "media":
            return Media(b"\x89PNG" * 10, "image/png")
        case "many words":
            return "☃" * 200_000
        case "state":
            return Returned(content="kept", state={"seen": 1}, attributes={"a": [1]})
    raise {
        "tool": ToolError("ask me later"),
        "value": ValueError("no such row"),
        "key": KeyError("row"),
        "exit": SystemExit(3),
        "cancel": asyncio.CancelledError(),
        "time": TimeoutError("my own"),
    }[kind]


@tool(timeout_s=0.1)
async def hurry() -> None:
    """Take longer than allowed, of little time."""
    await asyncio.sleep(60)


@tool(timeout_s=0.8)
async def dawdle(how: str) -> str:
    """Take longer than allowed, of more time than the quick way waits."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if how == "answers all the same":
            return "here I am"
        if how == "raises something else":
            raise ValueError("interrupted") from None
        if how == "takes its time":
            await asyncio.sleep(0.2)
        raise
    return "never"


@tool(read_only=True)
async def own_clock() -> str:
    """Have a time limit of one's own, which needs the task that it runs in."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
    return "in time"


@tool(read_only=True, long_running=True, queue="io")
async def build(steps: int) -> int:
    """Say how far it has come, and keep it."""
    for step in range(steps):
        current_context().progress((step + 1) / steps, f"step {step + 1}")
        current_context().checkpoint({"step": step})
        await asyncio.sleep(0.01)
    return steps


@tool(read_only=True)
async def tell(ctx: Context) -> dict[str, Any]:
    """What the call knows of itself."""
    assert current_context() is ctx
    return {
        "attempt": ctx.attempt,
        "context": dict(ctx.context),
        "state": dict(ctx.state),
        "who": [ctx.tenant, ctx.subject],
        "callback": ctx.callback_url.startswith("https://fleet.example/"),
        "time": ctx.time_left_s > 1,
    }


@tool
async def start_job(after_s: float) -> Submitted:
    """Begin work in another system."""
    return Submitted(external_id="job-1", poll_after_s=after_s)


@start_job.poll
async def ask_job(external_id: str, ctx: Context) -> Returned:
    """Ask for it."""
    return Returned(content=f"{external_id} done")


async def politely(call: ToolInvocation, go_on: Any) -> Any:
    """Stand around a tool."""
    call.context.attributes["polite"] = True
    return await go_on(call)


@tool(read_only=True, interceptors=[politely], retries=2, retry_on=ToolError)
async def insist() -> None:
    """Fail each time."""
    raise ToolError("still not")
