"""An orchestrator in a process of its own, so that it can be killed: begins a run for each line it reads."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from toolfleet.logs import configure_logs
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


async def main(base_url: str) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    async with Orchestrator(model=OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")) as fleet:
        print("ready", flush=True)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        stopped = asyncio.create_task(stopping.wait())
        while not stopping.is_set():
            reading = asyncio.create_task(reader.readline())
            await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
            elif line := reading.result():
                asked = json.loads(line)
                print(await fleet.start(asked.pop("question"), **asked), flush=True)
            else:
                await stopped


if __name__ == "__main__":
    configure_logs("info")
    asyncio.run(main(sys.argv[1]))
