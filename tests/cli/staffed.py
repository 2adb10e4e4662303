"""A fleet with workers, in a terminal of its own; its tools wait until a test lets them go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cli.command import Terminal, read_until
from toolfleet.local.fleet import LocalFleet

WAIT_S = 60

TOOLS = """
import asyncio
import logging
from pathlib import Path
from toolfleet import Context, Media, Submitted, tool

HERE = Path(__file__).parent

async def stay(name, ctx):
    with (HERE / f"{name}.begun").open("a") as begun:
        begun.write("begun\\n")
    ctx.progress(0.5, "page 4 of 8")
    try:
        while not (HERE / f"{name}.go").exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        (HERE / f"{name}.cancelled").touch()
        raise
    return f"{name} came back"

@tool(read_only=True)
async def photo() -> Media:
    "A picture."
    return Media(b"0123456789" * 10, "image/png", "a.png")

@tool(long_running=True)
async def walk(name: str, ctx: Context) -> str:
    "Walk for long."
    return await stay(name, ctx)

@tool
async def pause(name: str, ctx: Context) -> str:
    "Stay for a moment."
    return await stay(name, ctx)

@tool(requires_approval=True)
async def wipe(path: str) -> str:
    "Wipe a file."
    return f"wiped {path}"

@tool(read_only=True)
async def pick(n: int) -> str:
    "Pick one."
    logging.getLogger("picker").warning("picking \\x1b[2J %d\\nwith care", n)
    return f"picked {n}"

@tool
async def print_book(title: str) -> Submitted:
    "Have a book printed by another system."
    return Submitted(external_id=f"job-{title}", poll_after_s=1)
"""


class Staffed(Terminal):
    """A terminal whose commands find the fleet."""

    def ask(self, *words: str) -> Any:
        """What a command says in JSON."""
        ended = self.say(*words, "--json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    def begin(self, question: str) -> str:
        """A detached run's id."""
        ended = self.say("run", question, "--detach")
        assert ended.code == 0, ended
        return ended.out.strip()

    def until(self, name: str) -> None:
        """Wait until a tool has left this file."""
        give_up = time.monotonic() + WAIT_S
        while not (self.folder / name).exists():
            assert time.monotonic() < give_up, name
            time.sleep(0.02)

    def until_parked(self, run_id: str) -> dict[str, Any]:
        """Wait until a run waits for slow calls and for people."""
        give_up = time.monotonic() + WAIT_S
        while (run := self.ask("runs", "show", run_id))["state"] != "parked":
            assert time.monotonic() < give_up, run
        return run

    def until_submitted(self, call_id: str) -> None:
        """Wait until another system does the work of a call."""
        give_up = time.monotonic() + WAIT_S
        # Before its turn has come there is no such call.
        while (shown := self.say("calls", "show", call_id, "--json")).code or '"submitted"' not in shown.out:
            assert time.monotonic() < give_up, shown

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def begun(self, name: str) -> int:
        return len((self.folder / f"{name}.begun").read_text().splitlines())


@contextmanager
def staffed(folder: Path) -> Iterator[Staffed]:
    """A fleet without an orchestrator; its slow calls run one at a time."""
    (folder / "mine.py").write_text(TOOLS)
    here = {"PYTHONPATH": str(folder)}
    with LocalFleet(
        ["mine"], pools={"io": 1}, environment=here, worker_options=["--queues", "io,long", "--concurrency", "4"]
    ) as fleet:
        terminal = Staffed(folder, fleet.settings.as_environment())
        yield terminal
        terminal.until_nothing_is_left()


@contextmanager
def orchestrating(terminal: Staffed) -> Iterator[Staffed]:
    """The same with an orchestrator that works on detached runs."""
    colleague = replace(terminal)
    with colleague.start("orchestrator") as process:
        read_until(process, "Ready.")
        yield terminal
        process.terminate()
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, err) == (0, ""), (out, err)
