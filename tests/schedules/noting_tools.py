"""A tool that writes down which run has called it: a line of a file that nobody but the test reads."""

from __future__ import annotations

from pathlib import Path

from toolfleet import Context, tool


@tool
async def note(ledger: str, ctx: Context) -> str:
    """Write it down, once."""
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{ctx.run_id} {ctx.tenant}\n")
    return "noted"
