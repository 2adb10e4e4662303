"""What others see of a batch: while it runs, after it was killed, when it goes on, and that they can cancel it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.batch.desk import Desk, rooted
from tests.cli.command import ENDS_WITHIN_S, interrupted
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.batch import Identity
from toolfleet.orchestrator.batch.cancelling import cancel_batch
from toolfleet.orchestrator.errors import BatchNotFound
from toolfleet.orchestrator.models import REHEARSAL_MODEL
from toolfleet.orchestrator.models.rehearsal import Hang
from toolfleet.orchestrator.store.batches import Batches, BatchRecord, BatchState
from toolfleet.wire import Seal

LINES = 12


@pytest.fixture
async def batches(desk: Desk) -> AsyncIterator[Batches]:
    async with connect_async(desk.settings) as client:
        yield Batches(client, desk.settings, Seal(desk.settings))


def id_of(name: str) -> str:
    return Identity.given(name, model=REHEARSAL_MODEL).prefix.removesuffix("-")


async def until(batches: Batches, name: str, wanted: Callable[[BatchRecord], bool]) -> BatchRecord:
    """Wait until a batch stands so."""
    async with asyncio.timeout(ENDS_WITHIN_S):
        while True:
            try:
                if wanted(record := await batches.load(id_of(name))):
                    return record
            except BatchNotFound:
                pass
            await asyncio.sleep(0.05)  # a record tells nobody


@asynccontextmanager
async def hanging(desk: Desk, batches: Batches, name: str) -> AsyncIterator[tuple[object, tuple[str, ...]]]:
    """A batch three of whose runs wait for replies that never come; the others are written."""
    desk.write("in.jsonl", [*map(rooted, range(LINES)), "no JSON"])
    desk.server._faults.extend([Hang()] * 3)
    words = ("in.jsonl", "out.jsonl", "--batch-id", name, "--price-in", "1", "--price-out", "2")
    with desk.terminal.start("batch", *words) as process:
        await until(batches, name, lambda record: (record.written, record.in_hand) == (LINES - 2, 3))
        yield process, words


async def test_a_killed_batch_is_shown_as_interrupted_and_with_all_figures_when_it_goes_on(
    desk: Desk, batches: Batches
) -> None:
    async with hanging(desk, batches, "seen") as (process, words):
        running = await batches.load(id_of("seen"))
        os.killpg(process.pid, signal.SIGKILL)  # type: ignore[attr-defined]  # a Popen
    assert (running.state, running.lines, running.ok, running.failed) == (BatchState.RUNNING, LINES + 1, LINES - 3, 1)
    lost = await until(batches, "seen", lambda record: record.state is BatchState.INTERRUPTED)
    assert (lost.written, lost.reason, lost.ended_unix_s) == (LINES - 2, "its process is gone", None)
    ended = await desk.batch(*words)
    record = await batches.load(id_of("seen"))
    assert ended.code == 0, ended  # the line that cannot be run was told of before
    assert (record.state, record.ok, record.refused, record.in_hand) == (BatchState.DONE, LINES, 1, 0)
    assert (record.starts, record.began_unix_s, record.source) == (2, running.began_unix_s, "in.jsonl")
    done = [line for line in desk.read("out.jsonl") if line["state"] == "done"]
    assert record.calls == sum(line["calls"] for line in done) == 2 * LINES
    assert record.usage.input_tokens == sum(line["usage"]["input_tokens"] for line in done)
    assert record.cost == pytest.approx((record.usage.input_tokens + 2 * record.usage.output_tokens) / 1e6)


async def test_somebody_who_looks_on_cancels_a_batch_with_its_runs(desk: Desk, batches: Batches) -> None:
    async with hanging(desk, batches, "unwanted") as (process, words):
        async with Orchestrator(settings=desk.settings) as orchestrator:
            await cancel_batch(batches, orchestrator, id_of("unwanted"), tenant="", by="ada")
        code = await asyncio.to_thread(process.wait, ENDS_WITHIN_S)  # type: ignore[attr-defined]  # a Popen
    assert code == 1
    record = await batches.load(id_of("unwanted"))
    assert (record.state, record.reason) == (BatchState.CANCELLED, "the batch was cancelled by ada")
    heads = (await batches.runs(record, limit=100)).heads
    assert sorted(head.state for head in heads) == ["cancelled"] * 3 + ["done"] * (LINES - 3)
    await desk.batch(*words)
    assert (await batches.load(id_of("unwanted"))).failed == 4  # those that were cancelled, and the line that is none


async def test_a_batch_that_was_interrupted_is_cancelled_run_by_run_and_the_command_lists_it(
    desk: Desk, batches: Batches
) -> None:
    async with hanging(desk, batches, "left") as (process, _):
        await asyncio.to_thread(interrupted, process)
    assert (await batches.load(id_of("left"))).state is BatchState.INTERRUPTED
    listed = await asyncio.to_thread(desk.terminal.run, "batches", "list", "--json")
    assert id_of("left") in [each["batch_id"] for each in json.loads(listed.out)]
    cancelled = await asyncio.to_thread(desk.terminal.run, "batches", "cancel", id_of("left"))
    assert "its open runs are cancelled" in cancelled.out, cancelled
    shown = await asyncio.to_thread(desk.terminal.run, "batches", "show", id_of("left"), "--json")
    states = [run["state"] for run in json.loads(shown.out)["runs"]]
    assert sorted(states) == ["cancelled"] * 3 + ["done"] * (LINES - 3)
    again = await asyncio.to_thread(desk.terminal.run, "batches", "cancel", id_of("left"))
    assert again.code == 1
