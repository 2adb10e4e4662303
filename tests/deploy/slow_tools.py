"""Tools that keep a worker busy for longer than a probe waits."""

import time

from toolfleet import tool


@tool(queue="cpu")
def keeps_a_process_busy(seconds: float) -> str:
    """Work without a pause."""
    time.sleep(seconds)
    return "done"


@tool
async def stops_the_loop(seconds: float) -> str:
    """Do what an async tool must not."""
    time.sleep(seconds)  # that is the point
    return "done"
