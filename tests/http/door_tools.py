"""Tools that only tests of the doors need."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from toolfleet import Context, FromTenant, Media, Returned, Submitted, tool


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(patience_s=30)
async def elsewhere(job: str) -> Submitted:
    """Start a job that only a callback ends."""
    return Submitted(external_id=job)


@tool(read_only=True)
async def exported(size_bytes: int, media_type: str = "application/pdf", name: str = "") -> Media:
    """A document whose bytes its size tells."""
    return Media(random.Random(size_bytes).randbytes(size_bytes), media_type, name)


@tool(read_only=True)
async def page(text: str, characters: int) -> Media:
    """A page that begins with this text."""
    return Media(text.ljust(characters).encode(), "text/html", "../evil.html")


@tool(read_only=True)
async def narrate(text: str) -> str:
    """Log this."""
    logging.getLogger("narrator").info("%s", text)
    return "told"


@tool(read_only=True)
async def logged(lines: int) -> str:
    """Many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


@tool(read_only=True)
async def nested(value: Any) -> Any:
    """Give back what came."""
    return value


@tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, Any]:
    """Tell who asks, and who the caller claims to be."""
    return {"tenant": ctx.tenant, "subject": ctx.subject, "claimed": ctx.context.get("tenant")}


@tool(read_only=True, concurrency=1, concurrency_key=FromTenant())
async def one_by_one(stage: str) -> str:
    """Go on when the test says so; one at a time for each tenant."""
    reader, writer = await asyncio.open_unix_connection(stage)
    writer.write(b'{"pid": 0}\n')
    await reader.readline()
    writer.close()
    return "went"


@tool(read_only=True, rate="1/min")
async def now_and_then() -> str:
    """Once a minute."""
    return "now"


@tool(requires_approval=True)
async def confirmed(value: Any) -> Any:
    """Give back what came, once a person has allowed it."""
    return value


@tool
async def counted(path: str, fails: int = 0) -> str:
    """Add a line to a file; fail the first so many times."""
    file = Path(path)
    times = len(file.read_text().splitlines()) + 1 if file.exists() else 1
    file.write_text("called\n" * times)
    if times <= fails:
        raise RuntimeError(f"failed the {times}. time")
    return f"called {times} times"


@tool(timeout_s=0.2)
async def never_done() -> str:
    """Take longer than allowed, whatever it has done by then."""
    await asyncio.sleep(60)
    return "done"


@tool(read_only=True)
async def with_token(token: SecretStr) -> str:
    """Fail with a secret argument."""
    raise RuntimeError(f"{len(token.get_secret_value())} characters are too few")


@tool
async def choose_account(ctx: Context) -> list[Any]:
    """Ask which account is meant."""
    ctx.checkpoint("asked")
    return [await ctx.ask("Which <b>account</b>?\x1b[31m", Literal["savings", "checking"]), ctx.attempt]


@tool
async def keep_in_mind(name: str, value: Any) -> Returned:
    """Write something into what the tools share."""
    return Returned(content="noted", state={name: value})


@tool(read_only=True)
async def recited(words: list[str], ctx: Context) -> AsyncIterator[str]:
    """Recite words, one after the other."""
    for place, word in enumerate(words):
        ctx.progress(place / len(words), word)
        yield word
