"""Two sets of tools for workers that share a queue, and what they have done in a ledger outside."""

from __future__ import annotations

from pathlib import Path

from toolfleet import tool


def noted(path: str, line: str) -> str:
    with Path(path).open("a") as ledger:
        ledger.write(f"{line}\n")
    return line


@tool
async def note_here(path: str, line: str) -> str:
    """An effect that must not happen twice."""
    return noted(path, f"here {line}")


@tool
def note_in_process(path: str, line: str) -> str:
    """The same, from a plain function."""
    return noted(path, f"here {line}")
