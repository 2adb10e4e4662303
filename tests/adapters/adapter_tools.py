"""Tools for tests of the adapters."""

from __future__ import annotations

from typing import Any

from fleet_tools import _play

from toolfleet import Context, Media, ToolError, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@tool(read_only=True)
async def fail(text: str) -> None:
    """Raise."""
    raise ToolError(text)


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(name="a name/that models refuse", read_only=True)
async def named_oddly() -> str:
    """Has a name that no provider takes."""
    return "odd"


@tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, Any]:
    """What the caller says of itself."""
    return dict(ctx.context)


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f6"
    "45400000000049454e44ae426082"
)


@tool(read_only=True)
async def drawn(size_bytes: int = 0) -> list[str | Media]:
    """A picture of at least that size, with a word about it."""
    return ["look:", Media(PNG.ljust(size_bytes, b"\0"), "image/png", "dot.png")]


@tool(read_only=True)
async def printed() -> Media:
    """A document."""
    return Media(b"%PDF-1.7", "application/pdf", "a.pdf")


@tool(read_only=True)
async def spoken() -> Media:
    """A sound."""
    return Media(b"RIFF....WAVE", "audio/wav")


@tool(read_only=True)
async def zipped() -> Media:
    """What no model takes."""
    return Media(b"PK", "application/zip", "a.zip")


@tool(read_only=True)
async def logged(lines: int) -> str:
    """Many lines."""
    return "\n".join(f"line {n}" for n in range(lines))


@tool(read_only=True)
async def play(stage: str) -> Any:
    """Do as the stage says."""
    return await _play(stage)
