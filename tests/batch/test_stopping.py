"""A batch that is stopped goes on where it was, however it was stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections import Counter
from pathlib import Path

from tests.batch.desk import Desk, rooted
from tests.cli.command import ENDS_WITHIN_S, Terminal, interrupted
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.batch import Identity
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.models import REHEARSAL_MODEL, RehearsalServer
from toolfleet.orchestrator.models.rehearsal import Hang

LINES = 200
TURNS = 3
IN_HAND = 25


async def test_after_kill_9_every_line_is_written_once_and_no_stored_reply_is_asked_for_again(desk: Desk) -> None:
    desk.write("in.jsonl", map(rooted, range(LINES)))
    words = ("in.jsonl", "out.jsonl", "--concurrency", str(IN_HAND), "--batch-id", "killed")
    with desk.terminal.start("batch", *words) as process:
        await desk.until_written("out.jsonl", LINES // 3)
        os.killpg(process.pid, signal.SIGKILL)
    written_at_kill = len(desk.path("out.jsonl").read_bytes().splitlines())
    with desk.path("out.jsonl").open("ab") as file:
        file.write(b'{"id":"line-')  # as if the kill had come in the middle of a line
    stored = await _turns_stored(desk, Identity.given("killed", model=REHEARSAL_MODEL))

    ended = await desk.batch(*words)

    assert ended.code == 0, ended
    assert LINES // 3 <= written_at_kill < LINES
    lines = desk.read("out.jsonl")
    assert Counter(line["id"] for line in lines) == Counter(f"line-{number}" for number in range(LINES))
    assert {line["state"] for line in lines} == {"done"}
    assert all(f"sum: {number + 1}" in _line(lines, number)["answer"] for number in range(LINES))
    asked = desk.asked()
    assert len(asked) == LINES * TURNS
    # A reply that was under way when its asker died was never stored; it alone is asked for again.
    twice = {key for key, times in asked.items() if times > 1}
    assert max(asked.values()) <= 2
    assert len(twice) <= IN_HAND
    assert all(turn >= stored[question] for question, turn in twice)


async def test_ctrl_c_leaves_the_runs_in_the_store_and_says_how_to_go_on(desk: Desk) -> None:
    desk.write("in.jsonl", map(rooted, range(LINES)))
    with desk.terminal.start("batch", "in.jsonl", "out.jsonl", "--concurrency", str(IN_HAND)) as process:
        await desk.until_written("out.jsonl", LINES // 3)
        ended = await asyncio.to_thread(interrupted, process)
    assert ended.code == 130, ended
    assert "are kept in the store" in ended.err
    assert "Traceback" not in ended.err
    [command] = [line.removeprefix("To go on: ") for line in ended.err.splitlines() if line.startswith("To go on: ")]

    ended = await asyncio.to_thread(desk.terminal.run, *shlex.split(command)[1:])

    assert ended.code == 0, ended
    assert Counter(line["id"] for line in desk.read("out.jsonl")) == Counter(f"line-{n}" for n in range(LINES))
    assert "written before" in ended.err
    # It stopped in good order: even the replies that were under way were waited for.
    assert set(desk.asked().values()) == {1}


async def test_ctrl_c_cancels_what_is_under_way_where_that_is_wanted(desk: Desk) -> None:
    desk.write("in.jsonl", map(rooted, range(3)))
    desk.server._faults.extend([Hang()] * 3)
    words = ("in.jsonl", "out.jsonl", "--batch-id", "cancelled", "--cancel-on-interrupt")
    with desk.terminal.start("batch", *words) as process:
        async with asyncio.timeout(ENDS_WITHIN_S):
            while desk.server.request_count < 3:  # the server tells nobody
                await asyncio.sleep(0.005)
        ended = await asyncio.to_thread(interrupted, process)
    assert ended.code == 130, ended
    assert "0 of 3 lines are written, 3 runs were under way and are cancelled" in ended.err
    identity = Identity.given("cancelled", model=REHEARSAL_MODEL)
    async with Orchestrator(settings=desk.settings) as orchestrator:
        runs = [await orchestrator.get(identity.run_id(f"line-{number}")) for number in range(3)]
    assert {(run.state.value, run.reason) for run in runs} == {("cancelled", "the batch was interrupted")}


async def test_a_batch_that_is_through_asks_nothing_even_if_its_output_is_lost(desk: Desk) -> None:
    desk.write("in.jsonl", map(rooted, range(3)))
    first = await desk.batch("in.jsonl", "out.jsonl")
    asked = desk.asked()
    elsewhere = await desk.batch("in.jsonl", "other.jsonl")
    assert (first.code, elsewhere.code) == (0, 0)
    assert desk.asked() == asked
    assert sorted(map(str, desk.read("other.jsonl"))) == sorted(map(str, desk.read("out.jsonl")))
    assert "3 runs had begun before" in elsewhere.err


async def _turns_stored(desk: Desk, identity: Identity) -> dict[str, int]:
    """How many replies of each question are stored."""
    turns = {}
    async with Orchestrator(settings=desk.settings) as orchestrator:
        for line in map(rooted, range(LINES)):
            try:
                turns[line["question"]] = (await orchestrator.get(identity.run_id(line["id"]))).turn
            except RunNotFound:
                turns[line["question"]] = 0
    return turns


def _line(lines: list[dict], number: int) -> dict:
    [line] = [line for line in lines if line["id"] == f"line-{number}"]
    return line


async def test_after_kill_9_runs_are_taken_over_without_waiting_for_a_lease(tmp_path: Path) -> None:
    lease_s = 120
    async with RehearsalServer() as server:
        with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}, lease_s=lease_s) as fleet:
            model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "rehearsal", "OPENAI_MODEL": REHEARSAL_MODEL}
            desk = Desk(Terminal(tmp_path, {**fleet.settings.as_environment(), **model}), server, fleet.settings)
            desk.write("in.jsonl", map(rooted, range(3)))
            server._faults.extend([Hang()] * 3)
            with desk.terminal.start("batch", "in.jsonl", "out.jsonl") as process:
                async with asyncio.timeout(ENDS_WITHIN_S):
                    while server.request_count < 3:  # the server tells nobody
                        await asyncio.sleep(0.005)
                os.killpg(process.pid, signal.SIGKILL)
            began = time.monotonic()
            ended = await desk.batch("in.jsonl", "out.jsonl")
            took_s = time.monotonic() - began
    assert ended.code == 0, ended
    assert {line["state"] for line in desk.read("out.jsonl")} == {"done"}
    assert took_s < lease_s / 3
