"""Tools in the version that VERSION_OF_TOOLS tells the worker: with a cache, and failing until a file is there."""

from __future__ import annotations

import os
from pathlib import Path

from toolfleet import ToolError, tool

VERSION = int(os.environ["VERSION_OF_TOOLS"])


@tool(version=VERSION, read_only=True, cache_s=60)
async def rate(currency: str) -> str:
    """What a currency is worth."""
    return f"{currency} by version {VERSION}"


@tool(version=VERSION, idempotent=True)
async def deliver(path: str) -> str:
    """Deliver, once there is somebody to take it."""
    if not Path(path).exists():
        raise ToolError("nobody is there")
    return f"delivered by version {VERSION}"
