"""A tool whose jobs never end, and whose polls write down when they ran."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from toolfleet import Context, Submitted, tool

POLLED = "BENCHMARK_POLLED"
"""Where polls are written down: a job and a time on each line."""

ANSWER_MS = "BENCHMARK_ANSWER_MS"
"""How long the other system takes to answer."""

LATER_S = 24 * 3600.0


@tool(read_only=True, long_running=True, queue="io")
async def elsewhere() -> Submitted:
    """Start nothing: the benchmark writes the jobs itself."""
    return Submitted(external_id="none", poll_after_s=LATER_S)


answer_s = int(os.environ.get(ANSWER_MS, "0")) / 1000
polled = Path(os.environ.get(POLLED, os.devnull)).open("a", buffering=1)  # noqa: SIM115  # for the worker's whole life


@elsewhere.poll
async def poll(external_id: str, ctx: Context) -> Submitted:
    """Still not done."""
    polled.write(f"{ctx.call_id} {time.time():.6f}\n")
    await asyncio.sleep(answer_s)
    return Submitted(external_id=external_id, poll_after_s=LATER_S)
