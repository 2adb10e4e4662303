"""Tools of traced workers."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import own_telemetry  # noqa: F401  # as a user does it: the provider is there before the worker begins

from toolfleet import Context, RetryAfter, Returned, Secret, ToolError, tool


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(read_only=True, queue="io")
def add_blocking(a: int, b: int) -> int:
    """Add, on a thread."""
    return a + b


@tool(read_only=True)
async def carried() -> str:
    """What came along, and whether a span is there."""
    from opentelemetry import baggage, trace

    return f"{baggage.get_baggage('tenant')} {trace.get_current_span().is_recording()}"


@tool(read_only=True)
async def own_span(name: str) -> str:
    """A span of the tool's own."""
    from opentelemetry import trace

    with trace.get_tracer("tool").start_as_current_span(name):
        return name


@tool(read_only=True)
async def what_is_imported() -> list[str]:
    """The modules of OpenTelemetry in this process."""
    return sorted(name for name in sys.modules if name.split(".")[0] == "opentelemetry")


@tool(read_only=True)
async def fail(message: str) -> str:
    """Fail."""
    raise ValueError(message)


@tool(read_only=True)
async def refuse(message: str) -> str:
    """Say that it cannot be done."""
    raise ToolError(message)


@tool(requires_approval=True)
async def transfer(amount: int) -> str:
    """Needs a person."""
    return f"{amount} sent"


@tool(read_only=True)
async def unlock(door: str, code: Annotated[str, Secret()]) -> str:
    """Takes a secret."""
    return f"{door} is open"


@tool(read_only=True, queue="long", long_running=True)
async def job(marker: str, until: str) -> str:
    """Work until a file is there."""
    own = Path(marker)
    own.write_text(f"{own.read_text() if own.exists() else ''}x")
    while not Path(until).exists():
        await asyncio.sleep(0.02)
    return "worked"


@tool(read_only=True, queue="long", long_running=True)
async def reporting_job(ctx: Context) -> str:
    """Say how far it is."""
    ctx.progress(0.5, "half of what nobody is to read")
    return "reported"


@tool(read_only=True)
async def busy_once(marker: str) -> str:
    """Wait for its turn, once."""
    own = Path(marker)
    if not own.exists():
        own.write_text("x")
        raise RetryAfter(0.2)
    return "at last"


@tool(read_only=True)
async def told_that_limited() -> str:
    """Rate limited, and the model hears of it."""
    raise RetryAfter(12, tell_model=True)


@tool(read_only=True)
async def when() -> Returned:
    """The time."""
    return Returned(content=f"{time.time()}")
