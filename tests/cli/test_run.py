"""`toolfleet run`: one question to its answer."""

from __future__ import annotations

import json
import math
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.cli.command import ENDS_WITHIN_S, TOOLFLEET, Terminal
from toolfleet.local.fleet import LocalFleet

QUESTION = "What is the square root of 475695037565?"
ARITHMETIC = ("--tools", "toolfleet.workers.packs.arithmetic")
ROOT = f"is {math.sqrt(475695037565)}."

SLOW = """
import asyncio
from toolfleet import Context, tool

@tool(read_only=True, long_running=True)
async def walk(steps: int, ctx: Context) -> str:
    "Walk."
    for step in range(steps):
        ctx.progress((step + 1) / steps, f"step {step + 1}")
        await asyncio.sleep(0.2)
    return "arrived"
"""


def test_the_answer_is_printed_and_names_the_rehearsal_model(terminal: Terminal) -> None:
    ended = terminal.run("run", QUESTION, *ARITHMETIC)
    assert ended.code == 0, ended
    assert ROOT.startswith("is 689706.486532")
    assert ROOT in ended.out
    assert "a rehearsal model answers" in ended.out
    assert "\x1b" not in ended.out
    assert ended.err == ""


def test_json_is_one_document_and_the_question_may_come_by_standard_input(terminal: Terminal) -> None:
    # A folder that is called like ours is the user's business.
    (terminal.folder / "workers").mkdir()
    (terminal.folder / "workers" / "__init__.py").write_text("raise RuntimeError('not ours')")
    ended = terminal.run("run", "-", *ARITHMETIC, "--offer", "square_root", "--json", said=QUESTION)
    run = json.loads(ended.out)
    assert (run["state"], run["messages"][0]["content"]) == ("done", QUESTION)
    assert ROOT in run["answer"]
    assert [call["tool"] for call in run["calls"]] == ["square_root"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal in which a fleet with a slow tool can be reached."""
    terminal = Terminal(tmp_path_factory.mktemp("fleet"))
    terminal.write("mine", SLOW)
    here = {"PYTHONPATH": str(terminal.folder)}
    with LocalFleet(["mine"], pools={"long": 1}, environment=here) as running:
        yield replace(terminal, variables=running.settings.as_environment())


def test_a_terminal_shows_a_bar_for_the_batch_and_one_for_the_slow_call(fleet: Terminal) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [TOOLFLEET, "run", 'call walk {"steps": 4} then fetch', "--slow", "handle"],
        cwd=fleet.folder,
        env=fleet.environment(TERM="xterm", COLUMNS="120"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = _all_that_comes(ours)
        assert process.wait(ENDS_WITHIN_S) == 0, shown
    fleet.until_nothing_is_left()
    assert "turn 1: call " in shown
    assert "1/1" in shown
    assert "step 4" in shown
    assert "100%" in shown
    assert "arrived" in shown


def test_where_no_person_looks_progress_is_lines(fleet: Terminal) -> None:
    ended = fleet.run("run", 'call walk {"steps": 4} then fetch', "--slow", "handle")
    lines = ended.out.splitlines()
    assert "turn 1: 1 call" in lines
    assert "turn 1: 1 of 1 call is back" in lines
    assert any(line.startswith("walk: task submitted: ") for line in lines)
    assert "walk: done" in lines
    assert "\x1b" not in ended.out


def _all_that_comes(terminal: int) -> str:
    shown = b""
    with suppress(OSError):  # how Linux says that nobody has the other side any more
        while some := os.read(terminal, 65536):
            shown += some
    os.close(terminal)
    return shown.decode()
