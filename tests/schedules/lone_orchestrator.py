"""An orchestrator in a process of its own that works on whatever is there, so that it can be killed."""

from __future__ import annotations

import asyncio
import sys

import toolfleet.testing.instruments
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


async def main(base_url: str) -> None:
    async with Orchestrator(model=OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    assert toolfleet.testing.instruments
    asyncio.run(main(sys.argv[1]))
