"""Tools with something around them, and the interceptors that are. Served by real workers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from toolfleet import Context, Failed, FailureKind, Media, Returned, Secret, ToolError, current_context, tool
from toolfleet.interceptors import (
    Cache,
    ConcurrencyLimit,
    Mask,
    Proceed,
    Retry,
    TimeLimit,
    ToolInvocation,
    ToolPermission,
)
from toolfleet.interceptors.redis_store import RedisStore

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))

_tries: Counter[str] = Counter()


def _fail_until(call_id: str, succeeds_at: int, error: Exception) -> int:
    _tries[call_id] += 1
    if _tries[call_id] < succeeds_at:
        raise error
    return _tries[call_id]


# --- retries ---------------------------------------------------------------------------------------------------------


@tool(read_only=True, retries=3, retry_on=(OSError,), queue="io")
async def flaky(succeeds_at: int, ctx: Context, kind: str = "OSError") -> dict[str, int]:
    """Fail the first few times."""
    error = {"OSError": OSError("down"), "ValueError": ValueError("wrong"), "ToolError": ToolError("no")}[kind]
    tried = _fail_until(ctx.call_id, succeeds_at, error)
    return {"tried": tried, "tries": ctx.tries, "attempt": ctx.attempt}


@tool(retries=3, retry_on=OSError, queue="io")
def flaky_blocking(succeeds_at: int, ctx: Context) -> dict[str, int]:
    """The same from a plain function with an effect."""
    return {"tried": _fail_until(ctx.call_id, succeeds_at, OSError("down")), "tries": ctx.tries}


@tool(read_only=True, interceptors=[Retry(100, wait_s=60.0, max_wait_s=60.0)])
async def hopeless() -> None:
    """Fail, and be told to wait longer than the deadline."""
    raise OSError("still down")


@tool(read_only=True, interceptors=[Retry(10_000, OSError, wait_s=0.01, max_wait_s=0.01)])
async def flaky_for_ever() -> None:
    """Fail whenever it is tried."""
    current_context().progress(0.5)
    raise OSError("down")


# --- what is returned ------------------------------------------------------------------------------------------------


@tool(read_only=True, convert=lambda rows: Returned(content=f"{len(rows)} rows", attributes={"first": rows[0]}))
async def converted(rows: list[int]) -> list[int]:
    """Rows, of which the model need only know how many there are."""
    return rows


@tool(read_only=True, convert=lambda value: value, queue="io")
def misconverted(value: Any) -> Any:
    """A converter that returns what it must not."""
    return value


@tool(read_only=True, convert=str.upper)
async def shouted(text: str, fails: bool = False) -> Any:
    """A failure is no value, and is not converted."""
    return Failed(kind=FailureKind.DENIED, message="not you") if fails else text


@tool(read_only=True)
async def drawn(copies: int = 1, text: str = "") -> Any:
    """An image, or a text and images."""
    image = Media(PNG * copies, "image/png", "chart.png")
    return [text, image, {"n": 1}] if text else image


@tool(read_only=True)
async def sourced() -> Returned:
    """Say more to the caller than to the model."""
    return Returned(content="42", attributes={"source": "page 7"})


@tool(read_only=True)
async def lines(count: int) -> str:
    """Many lines."""
    return "\n".join(f"line {n}: {'needle' if n == count // 2 else 'hay'}" for n in range(count))


# --- interceptors ----------------------------------------------------------------------------------------------------


def _note(call: ToolInvocation, what: str) -> None:
    call.attributes.setdefault("seen", []).append(what)


async def watch(call: ToolInvocation, proceed: Proceed) -> Any:
    """For the whole worker."""
    _note(call, f"worker>{call.tool}")
    assert current_context() is call.context
    call.attributes["unsayable"] = object()
    result = await proceed(call)
    _note(call, f"worker<{result.type}")
    return result


async def _inner(call: ToolInvocation, proceed: Proceed) -> Any:
    _note(call, "tool>")
    result = await proceed(call)
    _note(call, "tool<")
    return result


async def _doubling(call: ToolInvocation, proceed: Proceed) -> Any:
    return await proceed(call.with_arguments(n=call.arguments["n"] * 2))


async def _spoiling(call: ToolInvocation, proceed: Proceed) -> Any:
    return await proceed(call.with_arguments(n="many", m=1))


async def _short(call: ToolInvocation, proceed: Proceed) -> Any:
    return {"instead": call.arguments["n"]}


async def _politely(call: ToolInvocation, proceed: Proceed) -> Any:
    try:
        return await proceed(call)
    except ValueError as error:
        raise ToolError(f"please: {error}") from error


@tool(read_only=True, interceptors=[_inner, _doubling])
async def doubled(n: int, ctx: Context) -> int:
    """Give back the number."""
    _note_here(ctx)
    return n


@tool(read_only=True, interceptors=[_inner, _doubling], queue="cpu")
def doubled_blocking(n: int, ctx: Context) -> int:
    """The same from a plain function."""
    _note_here(ctx)
    return n


def _note_here(ctx: Context) -> None:
    ctx.attributes["seen"].append("run")


@tool(read_only=True, interceptors=[_spoiling])
async def spoiled(n: int) -> int:
    """Never reached."""
    return n


@tool(read_only=True, interceptors=[_short])
async def shortened(n: int) -> int:
    """Never reached."""
    return n


@tool(read_only=True, interceptors=[_politely])
async def rude(n: int) -> int:
    """Raise."""
    raise ValueError(f"I hate {n}")


# --- compensation ----------------------------------------------------------------------------------------------------


@tool
async def book(seat: str, path: str) -> Returned:
    """Book a seat."""
    _write(path, f"booked {seat}")
    return Returned(content=f"booked {seat}", attributes={"ticket": f"T-{seat}"})


@book.compensate
async def _cancel_booking(call: Any, result: Returned, ctx: Context) -> None:
    given = json.loads(call.arguments)
    assert current_context() is ctx
    assert ctx.call_id == f"{call.call_id}-undo"
    assert given["seat"] != "stuck", "it cannot be cancelled any more"
    _write(given["path"], f"cancelled {result.attributes['ticket']}")


@tool(idempotent=True, queue="cpu")
def reserve(car: str, path: str) -> str:
    """Reserve a car."""
    _write(path, f"reserved {car}")
    return f"reserved {car}"


@reserve.compensate
def _cancel_reservation(call: Any, result: Returned, ctx: Context) -> str:
    _write(json.loads(call.arguments)["path"], f"undid {result.content}")
    return "the car is free again"


@tool(read_only=True)
async def pay(amount: int) -> str:
    """Pay, if it is not too much."""
    if amount > 100:
        raise ToolError("the card was declined")
    return "paid"


def _write(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


# --- the ones that are shipped ---------------------------------------------------------------------------------------


def _only_acme(call: ToolInvocation) -> str | None:
    return None if call.context.context.get("tenant") == "acme" else "only acme may"


@tool(interceptors=[ToolPermission(check=_only_acme)])
async def guarded() -> str:
    """For one tenant."""
    return "welcome"


@tool(read_only=True, interceptors=[TimeLimit(0.1)])
async def limited(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "in time"


@tool(read_only=True, interceptors=[Mask([r"user-\d+"])])
async def leaky(text: str, token: Annotated[str, Secret()], raises: str = "") -> Returned:
    """Say what should not be said."""
    if raises:
        raise (ToolError if raises == "tool" else RuntimeError)(f"{text} {token}")
    return Returned(content=f"{text} {token}", attributes={"sent": [token]})


@tool(read_only=True, interceptors=[Cache(60.0, context=["city"], by_subject=True, store=RedisStore())])
async def remembered(path: str, query: Any) -> Returned:
    """Count how often it is really asked."""
    return Returned(content=f"{query} for the {_count(path)}. time")


@tool(interceptors=[Cache(60.0)])
async def not_remembered(path: str) -> str:
    """The same with an effect."""
    return f"the {_count(path)}. time"


def _count(path: str) -> int:
    file = Path(path)
    times = len(file.read_text()) + 1 if file.exists() else 1
    file.write_text("x" * times)
    return times


_running: list[None] = []


@tool(read_only=True, interceptors=[ConcurrencyLimit(2)])
async def crowded() -> int:
    """How many of these run, this one included."""
    _running.append(None)
    await asyncio.sleep(0.02)
    seen = len(_running)
    _running.pop()
    return seen
