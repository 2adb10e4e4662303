"""What tests of replays and evaluations have in common: runs as files, and commands that reach nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.replay.differences import Difference
from toolfleet.orchestrator.replay.export import Export, exports_in
from toolfleet.orchestrator.replay.replaying import replay
from toolfleet.settings import Settings, new_secret

FOREIGN = ("TOOLFLEET_", "OPENAI_", "ANTHROPIC_")

SEALED = """
import sys

def heed(event, details):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise SystemExit(f"went online: {event} {details}")

sys.addaudithook(heed)
sys.argv = ["toolfleet", *sys.argv[1:]]
from toolfleet.orchestrator.doors.cli.main import main
main()
"""
"""The `toolfleet` command in a process that ends as soon as it wants to reach anything."""


class Said(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def offline_settings() -> Settings:
    return Settings(secret=new_secret(), redis_url="redis://127.0.0.1:1/0")


async def export_of(orchestrator: Orchestrator, run_id: str) -> Export:
    """A run as it is read back from its file."""
    lines = (await orchestrator.export(run_id)).lines()
    [export] = exports_in([line.encode() for line in lines], "here")
    return export


def file_of(export: Export, path: Path) -> Path:
    path.write_text("".join(export.lines()))
    return path


async def sealed(folder: Path, *words: object, **variables: str) -> Said:
    """`toolfleet …` in that folder, with no settings but these, ended as soon as it goes online."""
    return await command(folder, "-c", SEALED, *words, **variables)


async def command(folder: Path, *words: object, **variables: str) -> Said:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *map(str, words)),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ours, "XDG_DATA_HOME": str(folder), **variables},
    )
    out, err = await process.communicate()
    return Said(process.returncode or 0, out.decode(), err.decode())


async def different_again(settings: Settings) -> dict[str, Sequence[Difference]]:
    """The ended runs of a fleet that replay to something else, with what differs."""
    found = {}
    async with Orchestrator(settings=settings) as observer:
        for head in await observer.runs(limit=1000):
            if head.state.is_terminal:
                done = await replay(await export_of(observer, head.run_id), offline_settings())
                found[head.run_id] = done.differences
    return {run_id: differences for run_id, differences in found.items() if differences}
