"""Workers, orchestrators and people at a terminal, for all shards at once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

import psutil
import pytest

from tests.cli.command import Terminal, ended, read_until
from tests.shards.stages import Shards, asking, shard_of, until
from tests.shards.test_shards import charges
from toolfleet.orchestrator import NoSuchShard, State
from toolfleet.workers.each_shard import share


@pytest.fixture
def terminal(shards: Shards, tmp_path):
    """With the settings of all shards there are by then."""
    shards.add("a", "b", workers=False)
    variables = {name: value for name, value in shards.settings().as_environment().items() if value}
    return Terminal(tmp_path, variables)


async def said(terminal, *words, **variables):
    return await asyncio.to_thread(terminal.run, *words, **variables)


async def standings(terminal):
    answer = await said(terminal, "shards", "list", "--json")
    return {each["shard"]: each for each in json.loads(answer.out)}


async def test_D9_one_worker_command_serves_all_shards_and_outlives_any_of_them(shards, terminal, tmp_path):
    ledger = tmp_path / "ledger"

    def charge(n):
        return asking(["charge", {"ledger": str(ledger), "what": f"c{n}"}])

    with terminal.start(
        "worker", "--import", "shard_tools", "--concurrency", "5", PYTHONPATH=str(shards.tools)
    ) as worker:
        ready = [await asyncio.to_thread(read_until, worker, "Ready: worker") for _ in "ab"]
        assert all("pool io" in lines[-1] for lines in ready)
        async with shards.orchestrator() as fleet:
            await until(lambda: all(each.has_workers for each in fleet._shards.all))
            slots = [
                sum(each.concurrency for each in await fleet.shard_of(f"{name}~1").catalog.workers()) for name in "ab"
            ]
            assert slots == [3, 3]
            for n in range(4):
                assert (await fleet.run(charge(n))).state is State.DONE
            shards.servers["b"].kill()
            assert shard_of((await fleet.run(charge(4))).run_id) == "a"
            # As if its server had been away for longer than its connection is tried again: it is started anew.
            [of_b] = [
                each for each in psutil.Process(worker.pid).children() if each.environ()["TOOLFLEET_SHARD"] == "b"
            ]
            of_b.kill()
            assert shard_of((await fleet.run(charge(5))).run_id) == "a"
            shards.servers["b"].start()
            await until(lambda: not fleet.missing)
            assert (await fleet.run(charge(6), run_id="b~six")).state is State.DONE
        worker.send_signal(signal.SIGTERM)
        stopped = await asyncio.to_thread(ended, worker)
    assert stopped.code == 0, stopped
    assert stopped.err.count("limits_hold_on_each_shard") == 1
    assert "rarely" in stopped.err
    terminal.until_nothing_is_left()
    assert charges(ledger) == Counter(f"c{n}" for n in range(7))


async def test_D9_a_drained_shard_gets_nothing_new_and_is_taken_away_when_its_runs_have_ended(
    shards, terminal, tmp_path
):
    for name in "ab":
        shards.staff(name)
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    asked = asking(["charge_when_told", {"ledger": str(ledger), "what": "w", "gate": str(gate)}])
    async with shards.orchestrator() as fleet:
        waits = await fleet.start(asked, run_id="b~waits")
        await until(lambda: fleet.dispatched == 1)
        drained = await said(terminal, "shards", "drain", "b")
        assert (drained.code, drained.err) == (0, "")
        assert "b: gets no new runs. Under way there: 1 run, 1 call" in drained.out
        await until(lambda: fleet._shards.all[1].is_draining)
        begun = [await fleet.start(asking(["charge", {"ledger": str(ledger), "what": f"n{n}"}])) for n in range(4)]
        assert set(map(shard_of, begun)) == {"a"}
        refused = await said(terminal, "shards", "drain", "a")
        assert "no other shard than a takes new runs" in refused.complaint()
        there = (await standings(terminal))["b"]
        assert (there["is_draining"], there["unfinished_runs"], there["unsettled_calls"]) == (True, 1, 1)

        gate.touch()
        assert (await said(terminal, "shards", "drain", "b", "--wait")).code == 0
        assert (await fleet.wait(waits)).state is State.DONE
    shards.servers["b"].kill()
    async with shards.orchestrator(only=["a"]) as fleet:
        assert {(await fleet.wait(run_id)).state for run_id in begun} == {State.DONE}
        with pytest.raises(NoSuchShard):
            await fleet.start(asked, run_id=waits)
    assert charges(ledger) == Counter(["w", "n0", "n1", "n2", "n3"])


async def test_D9_an_orchestrator_command_works_on_runs_of_all_shards(shards, terminal, tmp_path):
    for name in "ab":
        shards.staff(name)
    other = Terminal(tmp_path, terminal.variables)
    with other.start("orchestrator") as process:
        await asyncio.to_thread(read_until, process, "Ready.")
        async with shards.orchestrator() as fleet:
            ids = [await fleet.submit("What do you see?", model="toolfleet-rehearsal") for _ in range(2)]
            assert sorted(map(shard_of, ids)) == ["a", "b"]
            assert {(await fleet.wait(run_id)).state for run_id in ids} == {State.DONE}
        alive = await said(terminal, "orchestrator", "--check")
        assert alive.code == 0
        assert len(alive.out.splitlines()) == 2
        listed = await said(terminal, "runs", "list", "--json")
        assert {head["run_id"] for head in json.loads(listed.out)} == {*ids}
        for run_id in ids:  # its id says on which shard it is to be looked for
            shown = await said(terminal, "runs", "show", run_id, "--json")
            assert json.loads(shown.out)["run_id"] == run_id
        process.send_signal(signal.SIGTERM)
        assert (await asyncio.to_thread(ended, process)).code == 0


async def test_a_shard_that_is_away_is_shown_so_and_the_others_as_they_stand(shards, terminal):
    shards.servers["b"].kill()
    shown = await said(terminal, "shards", "list")
    assert shown.code == 0
    rows = [line.split("\t") for line in shown.out.splitlines()]
    assert [row[:3] for row in rows] == [["a", "ready", "0"], ["b", "away", "-"]]
    assert "b: " in shown.err
    assert "Traceback" not in shown.err
    listed = await said(terminal, "runs", "list")
    assert (listed.code, listed.out) == (0, "No runs are stored.\n")
    assert "the runs of shard b are not listed" in listed.err
    assert "does not answer" in (await said(terminal, "shards", "drain", "b")).complaint()
    assert "no other shard than a takes new runs" in (await said(terminal, "shards", "drain", "a")).complaint()


async def test_what_is_wrong_is_said_in_one_line(shards, terminal):
    assert "no shard is called 'c'" in (await said(terminal, "shards", "drain", "c")).complaint()
    assert "TOOLFLEET_SHARD, which may be a, b" in (await said(terminal, "limits", "list")).complaint()
    one = await said(terminal, "shards", "list", TOOLFLEET_SHARDS="", TOOLFLEET_REDIS_URL=shards.servers["a"].url)
    assert "this fleet has one Redis" in one.complaint()
    swapped = " ".join(f"{name}={shards.servers[other].url}" for name, other in ("ab", "ba"))
    for name in "ab":
        assert (await said(terminal, "shards", "undrain", name)).out == f"{name}: gets new runs\n"
    for words in (("undrain", "a"), ("drain", "a")):
        wrong = await said(terminal, "shards", *words, TOOLFLEET_SHARDS=swapped)
        assert wrong.code == 78
        assert "is the shard 'b'" in wrong.complaint()


async def test_a_worker_that_no_waiting_would_help_is_not_started_for_ever(shards, terminal):
    async with shards.orchestrator():
        pass  # now each server knows its name
    swapped = " ".join(f"{name}={shards.servers[other].url}" for name, other in ("ab", "ba"))
    answer = await said(
        terminal, "worker", "--import", "shard_tools", TOOLFLEET_SHARDS=swapped, PYTHONPATH=str(shards.tools)
    )
    assert answer.code == 78
    assert answer.err.count("TOOLFLEET_SHARDS calls it") == 2


def test_slots_are_shared_out_and_each_shard_has_one():
    assert [share(5, 2), share(4, 2), share(1, 4), share(1000, 3)] == [3, 2, 1, 334]
