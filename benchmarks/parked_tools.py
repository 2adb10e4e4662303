"""What parked runs wait for: a job in another system that only a callback ends, so that no worker slot is held."""

from __future__ import annotations

from toolfleet import Submitted, tool

QUEUE = "io"
TOOL = "elsewhere"


@tool(name=TOOL, long_running=True, read_only=True, queue=QUEUE)
async def elsewhere(number: int) -> Submitted:
    """Start a job that is told of when it is done.

    Args:
        number: which one
    """
    return Submitted(external_id=str(number))
