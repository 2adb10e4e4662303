"""Changing the secret under load, in three steps: accept, sign, drop. Nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, aclosing

import pytest
from conversations import rehearsed
from fleets import HERE
from processes import WAIT_S, alive, ask_to_stop, lines, until_announced
from pydantic import SecretStr

from toolfleet.connections import connect_async
from toolfleet.errors import OtherSecret
from toolfleet.exit_status import ExitStatus
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.status.sealed_before import sealed_before
from toolfleet.settings import new_secret

OLD, NEW = new_secret(), new_secret()
STEPS = {
    "begin": {"secret": OLD, "previous_secret": ""},
    "accept": {"secret": OLD, "previous_secret": NEW},
    "sign": {"secret": NEW, "previous_secret": OLD},
    "drop": {"secret": NEW, "previous_secret": ""},
}
PAUSE_S = 0.1


class Change:
    """Two workers and two orchestrators, runs that go on all the time, and a step after the other."""

    def __init__(self, fleet: LocalFleet, ledger: str) -> None:
        self.fleet = fleet
        self.ledger = ledger
        self.begun: list[str] = []
        self.is_enough = False
        self.seats: list[AsyncExitStack] = []
        self.orchestrators: list[Orchestrator] = []

    def settings(self, step: str):
        secrets = {name: SecretStr(secret) for name, secret in STEPS[step].items()}
        return self.fleet.settings.model_copy(update=secrets)

    async def sit(self, step: str, seat: int) -> None:
        """Have an orchestrator in this seat; the one before hands its runs over."""
        stack = AsyncExitStack()
        orchestrator = await stack.enter_async_context(rehearsed(self.settings(step)))
        self.seats.insert(seat, stack)
        self.orchestrators.insert(seat, orchestrator)
        if len(self.seats) > 2:
            self.orchestrators.pop(seat + 1)
            await self.seats.pop(seat + 1).aclose()

    async def restart_orchestrators(self, step: str) -> None:
        for seat in range(2):
            await self.sit(step, seat)
            await asyncio.sleep(0.3)

    async def restart_workers(self, step: str) -> None:
        environment = {f"TOOLFLEET_{name.upper()}": secret for name, secret in STEPS[step].items()}
        for old in alive(self.fleet, "io"):
            new = self.fleet.start_worker("io", environment=environment)
            await asyncio.to_thread(until_announced, self.fleet, new)
            ask_to_stop(old)
            assert await asyncio.to_thread(old.process.wait, WAIT_S) == 0

    async def load(self) -> None:
        """Begin runs, each with two effects, until somebody says that it is enough."""
        self.is_enough = False
        while not self.is_enough:
            number = len(self.begun)
            calls = [{"ledger": self.ledger, "what": f"{number}-{each}"} for each in "ab"]
            question = " then ".join(f"call charge {json.dumps(call)}" for call in calls)
            self.begun.append(await self.orchestrators[number % 2].start(question))
            await asyncio.sleep(PAUSE_S)

    async def all_end(self) -> None:
        for run_id in self.begun:
            async with asyncio.timeout(3 * WAIT_S):
                run = await self.orchestrators[0].wait(run_id)
            assert run.state == "done", run
            assert [call.result.content[:7] for call in run.calls] == ["charged", "charged"], run.calls

    async def until_nothing_is_left(self) -> None:
        """As `toolfleet secret` tells before the last step."""
        async with asyncio.timeout(WAIT_S), aclosing(connect_async(self.fleet.settings)) as client:
            while await sealed_before(client, self.settings("sign")):
                await asyncio.sleep(0.2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", ["workers_first", "orchestrators_first"])
async def test_a_secret_is_changed_under_load_with_nothing_lost_and_nothing_repeated(tmp_path, order):
    with LocalFleet(["ledger_tools"], pools={"io": 2}, environment=HERE, secret=OLD, shutdown_grace_s=10) as fleet:
        change = Change(fleet, str(tmp_path / "ledger"))
        for seat in range(2):
            await change.sit("begin", seat)
        loading = asyncio.create_task(change.load())
        for step in ("accept", "sign", "drop"):
            await asyncio.sleep(0.5)
            if step == "drop":
                change.is_enough = True
                await loading
                await change.all_end()  # those that were begun under the old one
                await change.until_nothing_is_left()
                loading = asyncio.create_task(change.load())
            restarts = [change.restart_workers, change.restart_orchestrators]
            for restart in restarts if order == "workers_first" else reversed(restarts):
                await restart(step)
            assert not loading.done()
        await asyncio.sleep(0.5)
        change.is_enough = True
        await loading
        await change.all_end()
        for stack in change.seats:
            await stack.aclose()

        counted = Counter(lines(tmp_path / "ledger"))
        assert counted == {f"{number}-{each}": 1 for number in range(len(change.begun)) for each in "ab"}
        assert len(change.begun) > 50


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(["ledger_tools"], pools={"io": 1}, environment=HERE, secret=OLD) as running:
        yield running


async def test_who_leaves_out_a_step_does_not_begin(fleet):
    """Such a worker would have effects, and sign them so that nobody believes it."""
    change = Change(fleet, "")
    with pytest.raises(OtherSecret, match="one step of changing the secret behind or ahead"):
        await change.sit("sign", 0)
    environment = {f"TOOLFLEET_{name.upper()}": secret for name, secret in STEPS["sign"].items()}
    hasty = fleet.start_worker("io", environment=environment)
    assert await asyncio.to_thread(hasty.process.wait, WAIT_S) == ExitStatus.CONFIGURATION
    assert "toolfleet secret" in hasty.log_tail()
    fleet.workers.remove(hasty)
