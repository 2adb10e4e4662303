"""What tests of runs that people steer have in common: an orchestrator that is killed, and runs as they stand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.points import Point, install

ROOT = Path(__file__).parents[2]
WAIT_S = 30


def answers(run: Run, name: str) -> list[str]:
    """What the model was told by a tool, in order."""
    return [message.content for message in run.messages if isinstance(message, ToolMessage) and message.name == name]


def parked(run: Run) -> bool:
    return run.state is State.PARKED


async def until(fleet: LocalFleet, run_id: str, condition: Callable[[Run], bool]) -> Run:
    """The run once it is as a test wants it: looked at whenever something was written to it."""
    key = fleet.settings.keys.run(run_id)
    async with (
        asyncio.timeout(WAIT_S),
        connect_async(fleet.settings) as client,
        Orchestrator(settings=fleet.settings) as observer,
    ):
        while True:
            written = await client.xrevrange(key, count=1)  # nothing as long as the run is not begun
            if written and condition(run := await observer.get(run_id)):
                return run
            newest = written[0][0] if written else "0"
            await client.xread({key: newest}, block=5000)


@asynccontextmanager
async def lone(
    fleet: LocalFleet, base_url: str, question: str, where: str = "nowhere", **options: Any
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """An orchestrator in a process of its own, and the run that it has begun; it is dead by the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.steering.steered", base_url, where, question, json.dumps(options)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **fleet.settings.as_environment()},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def dies_at(where: str) -> None:
    """Be killed at this point; `gathered:2` is the second time that it is reached."""
    point, _, number = where.partition(":")
    left = int(number or 1)

    def hook(there: Point, _: str) -> None:
        nonlocal left
        left -= there == point
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    install(hook)


async def _main(base_url: str, where: str, question: str, options: str) -> None:
    dies_at(where)
    async with Orchestrator(OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")) as orchestrator:
        run_id = orchestrator.settings.new_run_id()
        print(run_id, flush=True)  # before: it may die at once
        await orchestrator.start(question, run_id=run_id, **json.loads(options))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
