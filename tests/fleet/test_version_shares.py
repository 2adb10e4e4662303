"""A share of new runs tries a new version, which is taken back when it fails too often."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE
from processes import until_announced

from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import InvalidVersion, NoSuchShare
from toolfleet.orchestrator.fleet.verdict import Ends, against, at_least
from toolfleet.orchestrator.fleet.version_shares import Trial
from toolfleet.orchestrator.models import ReplyComplete

CALLS_OF_A_RUN = 20


class Shaking(WrittenModel):
    """Asks for calls once in each run, with numbers that go on from run to run."""

    def __init__(self):
        super().__init__()
        self._numbers = itertools.count(0, 7)  # which passes through all remainders of a hundred

    async def stream(self, messages, tools, **_):
        asks = requesting(
            *((f"c{n}", "shaky", json.dumps({"number": next(self._numbers)})) for n in range(CALLS_OF_A_RUN))
        )
        has_asked = any(isinstance(message, AssistantMessage) for message in messages)
        said = AssistantMessage(content="done") if has_asked else asks
        reason = "stop" if has_asked else "tool_calls"
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)


@pytest.fixture
def fleet():
    with LocalFleet(["shaky_tools"], pools={"io": 1}, environment=HERE) as running:
        yield running


def start_second(fleet, fails):
    environment = {"VERSION_OF_TOOLS": "2", "SHAKY_FAILS": str(fails)}
    until_announced(fleet, fleet.start_worker("io", environment=environment))


async def until(orchestrator, is_so):
    async with asyncio.timeout(10):
        while True:
            [standing] = await orchestrator.versions.list()
            if is_so(standing):
                return standing
            await asyncio.sleep(0.1)


async def tried(orchestrator, runs=100):
    """Runs of which a tenth tries version 2, half of them on each of two orchestrators."""
    trial = Trial(version=2, other=1, share=0.1, since_ms=0)
    names = (f"run-{n}" for n in itertools.count())
    chosen = {2: [], 1: []}
    for name in names:
        version = trial.version_of("shaky", name)
        if len(chosen[version]) < (runs // 10 if version == 2 else runs - runs // 10):
            chosen[version].append(name)
        if sum(map(len, chosen.values())) == runs:
            break
    return {name: version for version, these in chosen.items() for name in these}


async def test_U6_a_version_that_fails_five_times_as_often_is_taken_back_and_says_why(fleet):
    async with (
        Orchestrator(model=Shaking(), settings=fleet.settings) as here,
        Orchestrator(model=Shaking(), settings=fleet.settings) as there,
    ):
        await here.versions.share("shaky", 2, 0.1, by="ada")
        await asyncio.to_thread(start_second, fleet, 50)
        for each in (here, there):
            await until(each, lambda standing: standing.live == (1, 2))
        names = await tried(here)
        runs = await asyncio.gather(*((here, there)[n % 2].run("?", run_id=name) for n, name in enumerate(names)))
        assert {run.versions["shaky"] for run in runs if names[run.run_id] == 1} == {1}
        assert 2 in {run.versions["shaky"] for run in runs}
        standing = await until(here, lambda standing: standing.said.share == 0)
        shared, taken_back = standing.said.history
        assert (shared.by, shared.action, shared.share) == ("ada", "share", 0.1)
        assert (taken_back.by, taken_back.action) == ("toolfleet", "taken back")
        assert "calls have failed, where" in taken_back.why
        assert standing.new_runs == 1
        async with asyncio.timeout(10):
            while there.catalog.trials["shaky"].share:
                await asyncio.sleep(0.1)
                await there.catalog.offered()
        [second, *_] = [name for name, version in names.items() if version == 2]
        assert (await there.run("?", run_id=f"{second}")).run_id == second  # as it was
        assert {(await there.run("?")).versions["shaky"] for _ in range(20)} == {1}


async def test_U6_a_version_that_fails_as_often_as_the_other_stays(fleet):
    async with Orchestrator(model=Shaking(), settings=fleet.settings) as orchestrator:
        await orchestrator.versions.share("shaky", 2, 0.1)
        await asyncio.to_thread(start_second, fleet, 10)
        await until(orchestrator, lambda standing: standing.live == (1, 2))
        names = await tried(orchestrator)
        runs = await asyncio.gather(*(orchestrator.run("?", run_id=name) for name in names))
        assert {run.run_id: run.versions["shaky"] for run in runs} == names
        counted = await until(orchestrator, lambda standing: sum(each.calls for each in standing.ends.values()) == 2000)
        assert (counted.ends[2].calls, counted.ends[1].calls) == (200, 1800)
        assert 0 < counted.ends[2].failed < 60
        assert counted.said.share == 0.1
        assert await orchestrator.call("shaky", {"number": 99}) == await orchestrator.call("shaky", {"number": 199})
        assert (await orchestrator.call("shaky", {"number": 99})).content == "1"
        await orchestrator.versions.settle("shaky")
        async with asyncio.timeout(10):
            while (await orchestrator.run("?")).versions != {"shaky": 2}:
                await asyncio.sleep(0.1)
        with pytest.raises(NoSuchShare, match="nothing was said"):
            await orchestrator.versions.abandon("shaky")
        for wrong in (True, -0.1, 1.1, float("nan")):
            with pytest.raises(InvalidVersion):
                await orchestrator.versions.share("shaky", 2, wrong)


def test_what_speaks_against_a_version_is_more_than_chance():
    assert against(Ends(0, 0), Ends(1000, 0)) == ""
    assert against(Ends(3, 3), Ends(0, 0)) == ""  # of the other nothing is known
    assert against(Ends(20, 10), Ends(180, 18)).startswith("10 of 20 calls have failed, where 18 of 180 do")
    assert against(Ends(200, 20), Ends(1800, 180)) == ""
    assert against(Ends(10**6, 15 * 10**4), Ends(10**6, 10**5)) == ""  # certain, and not twice as often
    assert against(Ends(10**6, 10**6), Ends(10**6, 0))
    assert at_least(0, 5, 0.5) == 1.0
    assert at_least(5, 5, 0.5) == pytest.approx(1 / 32)


def test_a_share_is_of_runs_and_each_run_has_its_version_wherever_it_is_asked():
    trial = Trial(version=2, other=1, share=0.1, since_ms=0)
    chosen = [trial.version_of("t", f"run-{n}") for n in range(10_000)]
    assert 900 < chosen.count(2) < 1100
    assert chosen == [trial.version_of("t", f"run-{n}") for n in range(10_000)]
    assert {trial._replace(share=1.0).version_of("t", str(n)) for n in range(1000)} == {2}
    assert {trial._replace(share=0.0).version_of("t", str(n)) for n in range(1000)} == {1}
