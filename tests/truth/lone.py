"""An orchestrator in a process of its own that begins one run, prints its id, and dies where it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.truth.slow_writer import NAME
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import OpenAIChat
from toolfleet.points import Point, install


def dies_at(where: str) -> None:
    """Be killed at this point."""

    def hook(point: Point, _: str) -> None:
        if point == where:
            os.kill(os.getpid(), signal.SIGKILL)

    install(hook)


async def main(base_url: str, where: str) -> None:
    dies_at(where)
    model = OpenAIChat(NAME, base_url=base_url, api_key="none")
    async with Orchestrator(model) as orchestrator:
        print(await orchestrator.start("?"), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
