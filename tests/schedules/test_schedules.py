"""Schedules on real orchestrators: each tick one run, whoever is killed around it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat
from toolfleet.orchestrator.run.states import State
from toolfleet.testing import Point, kill_at

WAIT_S = 60

EACH_SECOND = "* * * * * *"


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def orchestrating(fleet, model):
    chat = OpenAIChat(REHEARSAL_MODEL, base_url=model.base_url, api_key="rehearsal")
    async with Orchestrator(model=chat, settings=fleet.settings) as orchestrator:
        yield orchestrator


@asynccontextmanager
async def processes(fleet, model, *fates):
    """Orchestrators, each in a process of its own."""
    started = []
    try:
        for fate in fates:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(Path(__file__).with_name("lone_orchestrator.py")),
                model.base_url,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **fleet.settings.as_environment(), **fate},
            )
            started.append(process)
        async with asyncio.timeout(WAIT_S):
            for process in started:
                assert (await process.stdout.readline()).strip() == b"ready"
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()
            process._transport.close()


class Ledger:
    """What the tools of a schedule's runs have written down."""

    def __init__(self, path):
        self.path = path
        self.question = f'call note {{"ledger": "{path}"}}'

    def runs(self):
        return [line.split()[0] for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def ticks(self, schedule_id):
        return sorted(tick_of(run_id, schedule_id) for run_id in self.runs())

    async def until(self, count):
        async def enough():
            return len(self.runs()) >= count

        await until(enough)


def tick_of(run_id, schedule_id):
    text = run_id.removeprefix(f"{schedule_id}-")
    return int(datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


async def test_U10_each_tick_is_one_run_though_orchestrators_are_killed_at_every_step_of_one(fleet, model, ledger):
    points = (Point.SCHEDULE_TAKEN, Point.TICK_DECIDED, Point.TICK_BEGUN)
    fates = [kill_at(point) for point in points]
    async with Orchestrator(settings=fleet.settings) as looking:
        async with processes(fleet, model, *fates) as doomed:
            made = await looking.schedules.add(
                EACH_SECOND, ledger.question, model=REHEARSAL_MODEL, missed="all", tenant="acme"
            )
            async with asyncio.timeout(WAIT_S):
                for process in doomed:
                    assert await process.wait() == -9
        async with orchestrating(fleet, model), orchestrating(fleet, model):
            at_least = int(time.time() - made.made_unix_s) + 2
            await ledger.until(at_least)
            await looking.schedules.pause(made.schedule_id)
            kept = await looking.schedules.get(made.schedule_id)
            began = [tick for tick in kept.ticks if tick.run_id]

            async def all_are_through():
                runs = await asyncio.gather(*(looking.get(tick.run_id) for tick in began))
                return all(run.state is State.DONE for run in runs)

            await until(all_are_through)
        found = ledger.ticks(made.schedule_id)
        assert len(set(found)) == len(found)
        assert found == list(range(found[0], found[-1] + 1))
        assert found[0] <= made.made_unix_s + 1
        assert len(found) >= at_least
        run = await looking.get(began[0].run_id)
        assert (run.terms.tenant, run.asked_as["schedule"]) == ("acme", made.schedule_id)
        await looking.schedules.remove(made.schedule_id)


async def test_U10_ticks_missed_while_nobody_was_there_are_skipped_or_made_up_for_once_or_all(fleet, model, ledger):
    manners = {"skip": 0, "once": 1, "all": 2}
    async with orchestrating(fleet, model) as orchestrator:
        add = orchestrator.schedules.add
        made = {missed: await add(EACH_SECOND, ledger.question, missed=missed, at_most=2) for missed in manners}
    gone_unix_s = int(time.time())
    await asyncio.sleep(gone_unix_s + 8 - time.time())  # what is awaited is the time itself
    async with orchestrating(fleet, model) as orchestrator:
        schedules = orchestrator.schedules

        async def all_go_on():
            kept = {missed: await schedules.get(each.schedule_id) for missed, each in made.items()}
            return (
                kept if all(each.decided_unix_s > gone_unix_s + 7 and not each.owed for each in kept.values()) else None
            )

        for missed, kept in (await until(all_go_on)).items():
            await schedules.remove(kept.schedule_id)
            began = [tick for tick in kept.ticks if tick.run_id]
            # Those within the grace were not missed, however late they were.
            late = [tick for tick in began if gone_unix_s + 1 < tick.tick_unix_s <= gone_unix_s + 4]
            assert len(late) <= manners[missed]
            assert sum(tick.missed for tick in kept.ticks) >= 3 - manners[missed]
            seen = len(began) + sum(tick.missed for tick in kept.ticks)
            assert seen == kept.decided_unix_s - int(kept.made_unix_s)
            await asyncio.gather(*(orchestrator.wait(tick.run_id) for tick in began))
        assert len(set(ledger.runs())) == len(ledger.runs())
