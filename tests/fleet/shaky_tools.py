"""A tool in two versions that fails as often as SHAKY_FAILS says, of a hundred."""

from __future__ import annotations

import os

from toolfleet import tool

VERSION = int(os.environ.get("VERSION_OF_TOOLS", "1"))
FAILS = int(os.environ.get("SHAKY_FAILS", "10"))


@tool(version=VERSION, read_only=True)
async def shaky(number: int) -> str:
    """Fail for some numbers."""
    if number % 100 < FAILS:
        raise ValueError(f"{number} fails")
    return f"{VERSION}"
