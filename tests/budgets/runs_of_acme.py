"""An orchestrator in a process of its own: runs of the tenant acme, all at once, and a line on how each has ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from tests.budgets.paid_provider import NAME
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import BudgetSpent
from toolfleet.orchestrator.models import OpenAIChat
from toolfleet.points import Point, install


def dies_at(where: str) -> None:
    """Be killed at this point."""

    def hook(point: Point, _: str) -> None:
        if point == where:
            os.kill(os.getpid(), signal.SIGKILL)

    install(hook)


async def one_run(orchestrator: Orchestrator, options: dict[str, Any]) -> None:
    try:
        run = await orchestrator.run("?", tenant="acme", **options)
    except BudgetSpent as spent:
        print(json.dumps(["refused", str(spent)]), flush=True)
    else:
        print(json.dumps([run.state, run.reason]), flush=True)


async def main(base_url: str, runs: int, options: dict[str, Any], where: str) -> None:
    if where:
        dies_at(where)
    async with Orchestrator(OpenAIChat(NAME, base_url=base_url, api_key="none")) as orchestrator:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(one_run(orchestrator, options) for _ in range(runs)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]))
