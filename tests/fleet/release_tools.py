"""Tools in two releases: RELEASE_OF_TOOLS tells the worker its own. What they did is in a ledger outside."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from toolfleet import tool

IS_NEW = os.environ.get("RELEASE_OF_TOOLS") == "new"


async def noted(path: str, line: str) -> str:
    with Path(path).open("a") as ledger:
        ledger.write(f"{line}\n")
    await asyncio.sleep(0.02)
    return line


@tool
async def keep(path: str, line: str) -> str:
    """A tool that does not change."""
    return await noted(path, f"keep {line}")


@tool(description="A new text." if IS_NEW else "An old text.")
async def reword(path: str, line: str) -> str:
    return await noted(path, f"reword {line}")


if IS_NEW:

    @tool
    async def widen(path: str, line: str, suffix: str = "") -> str:
        """A tool with a parameter more."""
        return await noted(path, f"widen {line}{suffix}")

    @tool
    async def added(path: str, line: str) -> str:
        """A tool of the new release."""
        return await noted(path, f"added {line}")

else:

    @tool
    async def widen(path: str, line: str) -> str:
        """A tool with a parameter less."""
        return await noted(path, f"widen {line}")

    @tool
    async def removed(path: str, line: str) -> str:
        """A tool of the old release."""
        return await noted(path, f"removed {line}")
