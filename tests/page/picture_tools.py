"""The tool of a picture: its first worker is lost in its midst."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

from toolfleet import Context, tool

log = logging.getLogger("shop.orders")

UNTIL_KEPT_S = 2.5
"""After a second the lines of a call that runs are kept."""


@tool(read_only=True)
async def import_orders(file: str, ctx: Context) -> dict[str, int]:
    """Import orders from a file."""
    log.info("reading %s", file)
    await asyncio.sleep(0.3)
    log.info("4812 lines, from 2026-01-02 to 2026-01-31")
    if ctx.attempt == 1:
        await asyncio.sleep(UNTIL_KEPT_S)
        os.kill(os.getpid(), signal.SIGKILL)
    log.warning("line 1731 has no date: left out")
    await asyncio.sleep(0.2)
    log.info("wrote 4811 orders")
    return {"orders": 4811, "left_out": 1}
