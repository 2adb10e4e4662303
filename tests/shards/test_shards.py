"""Runs over several Redis servers: one of them dies, one is added, one is emptied and taken away."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest
import redis

from tests.shards.stages import asking, obedient, shard_of, until
from toolfleet.connections import connect_async
from toolfleet.errors import InvalidSettings, StoreUnreachable
from toolfleet.logs import FACTS
from toolfleet.orchestrator import NoSuchShard, Orchestrator, RunNotFound, ShardedOrchestrator, State
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.errors import NotOpen, OtherShard, ScheduleNotFound
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.settings import Settings


def charges(ledger):
    return Counter(ledger.read_text().split()) if ledger.exists() else Counter()


def keys_with(server, word):
    with redis.Redis.from_url(server.url) as client:
        return [key for key in client.scan_iter(count=10_000) if word.encode() in key]


async def test_D9_a_shard_that_is_down_keeps_its_own_runs_waiting_and_nobody_elses(shards, tmp_path):
    shards.add("a", "b")
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with shards.orchestrator() as fleet:
        waiting = [
            await fleet.start(asking(["charge_when_told", {"ledger": str(ledger), "what": f"w{n}", "gate": str(gate)}]))
            for n in range(6)
        ]
        assert Counter(map(shard_of, waiting)) == {"a": 3, "b": 3}
        there = [run_id for run_id in waiting if shard_of(run_id) == "b"]
        shards.servers["b"].kill()

        begun = [await fleet.start(asking(["charge", {"ledger": str(ledger), "what": f"n{n}"}])) for n in range(6)]
        assert set(map(shard_of, begun)) == {"a"}
        assert {(await fleet.wait(run_id)).state for run_id in begun} == {State.DONE}
        with pytest.raises(StoreUnreachable):
            await fleet.get(there[0])
        listed = await fleet.runs()
        assert {head.run_id for head in listed} == {*begun, *waiting} - {*there}
        assert list(listed.missing) == ["b"]

        gate.touch()
        here = [run_id for run_id in waiting if run_id not in there]
        assert {(await fleet.wait(run_id)).state for run_id in here} == {State.DONE}
        shards.servers["b"].start()
        await until(lambda: not fleet.missing)
        ended = await asyncio.gather(*map(fleet.wait, there))
        assert {run.state for run in ended} == {State.DONE}
    assert charges(ledger) == Counter([*(f"w{n}" for n in range(6)), *(f"n{n}" for n in range(6))])


async def test_D9_all_keys_of_a_run_are_on_its_shard_and_its_id_says_which(shards, tmp_path):
    shards.add("a", "b")
    gate = tmp_path / "gate"
    async with shards.orchestrator() as fleet:
        ids = [await fleet.start(asking(["later", {"gate": str(gate)}]), slow="handle") for _ in range(4)]
        submitted = await fleet.call("later", {"gate": str(gate)}, patience_s=0)
        assert shard_of(submitted.handle) in ("a", "b")
        gate.touch()
        for run_id in ids:
            await fleet.wait(run_id)
            assert keys_with(shards.servers[shard_of(run_id)], run_id)
            [other] = {"a", "b"} - {shard_of(run_id)}
            assert not keys_with(shards.servers[other], run_id)
        assert (await fleet.task(submitted.handle, wait_s=30)).result.content == "at last"


async def test_schedules_are_spread_over_the_shards_and_found_by_their_ids(shards):
    shards.add("a", "b", workers=False)
    async with shards.orchestrator() as fleet:
        made = [await fleet.schedules.add("0 8 * * *", asking(), tenant="acme") for _ in range(4)]
        assert Counter(shard_of(each.schedule_id) for each in made) == {"a": 2, "b": 2}
        newest_first = [each.schedule_id for each in reversed(made)]
        assert [each.schedule_id for each in await fleet.schedules.list(tenant="acme", limit=3)] == newest_first[:3]
        assert await fleet.schedules.list(tenant="another") == []
        for each in made:
            assert (await fleet.schedules.pause(each.schedule_id)).is_paused
            assert not (await fleet.schedules.resume(each.schedule_id)).is_paused
            begun = await fleet.schedules.run(each.schedule_id)
            assert shard_of(begun) == shard_of(each.schedule_id)
            assert (await fleet.schedules.get(each.schedule_id, tenant="acme")).ticks[0].run_id == begun
        with pytest.raises(ScheduleNotFound):
            await fleet.schedules.remove(made[0].schedule_id, tenant="another")
        with pytest.raises(NoSuchShard):
            await fleet.schedules.get("z~s1")
        await fleet.schedules.remove(made[0].schedule_id)
        shards.servers["b"].kill()
        left = await fleet.schedules.list(tenant="acme")
        assert {shard_of(each.schedule_id) for each in left} == {"a"}
        assert list(left.missing) == ["b"]
    with pytest.raises(NotOpen):
        _ = fleet.schedules


async def test_D9_a_fleet_with_one_redis_becomes_the_first_shard_of_two(shards, tmp_path):
    shards.add("a")
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    asked = asking(["charge_when_told", {"ledger": str(ledger), "what": "old", "gate": str(gate)}])
    plain = shards.settings("a").model_copy(update={"shards": "", "shard": ""})
    async with Orchestrator(obedient(), settings=plain) as before:
        old = await before.start(asked)
    assert "~" not in old

    shards.add("b")
    async with shards.orchestrator() as fleet:
        new = [await fleet.start(asking(["charge", {"ledger": str(ledger), "what": f"n{n}"}])) for n in range(4)]
        assert Counter(map(shard_of, new)) == {"a": 2, "b": 2}
        gate.touch()
        for run_id in (old, *new):
            assert (await fleet.wait(run_id)).state is State.DONE
        assert {head.run_id for head in await fleet.runs()} == {old, *new}
    assert charges(ledger) == Counter(["old", "n0", "n1", "n2", "n3"])


async def test_what_is_copied_to_another_shard_is_believed_by_nobody(shards, tmp_path):
    shards.add("a", "b")
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    async with shards.orchestrator() as fleet:
        asked = asking(["charge_when_told", {"ledger": str(ledger), "what": "w", "gate": str(gate)}])
        run_id = await fleet.start(asked, run_id="b~mine")
        await until(lambda: fleet.dispatched == 1)
        with (
            redis.Redis.from_url(shards.servers["b"].url) as one,
            redis.Redis.from_url(shards.servers["a"].url) as other,
        ):
            for key in one.scan_iter(count=10_000):
                if (dumped := one.dump(key)) and not key.split(b":")[1].startswith(
                    (b"shard", b"work", b"orch", b"node")
                ):
                    other.restore(key, 0, dumped, replace=True)
        async with Orchestrator(obedient(), settings=shards.settings("a")) as thief:
            with pytest.raises(RunNotFound):
                await thief.get(run_id)
        gate.touch()
        assert (await fleet.wait(run_id)).state is State.DONE
        # A call behind the copied ones: whatever its worker did with those, it has done.
        assert (await fleet.run(asking(["charge", {"ledger": str(ledger), "what": "n"}]), run_id="a~n")).state == "done"
    assert charges(ledger) == Counter(["w", "n"])


async def test_an_id_of_ones_own_belongs_to_one_shard_and_is_begun_on_no_other(shards, tmp_path):
    shards.add("a", "b")
    ledger = tmp_path / "ledger"
    asked = asking(["charge", {"ledger": str(ledger), "what": "once"}])
    async with shards.orchestrator() as fleet:
        assert await fleet.start(asked, run_id="order-17") == "order-17"
        assert await fleet.start(asked, run_id="order-17") == "order-17"
        assert (await fleet.wait("order-17")).state is State.DONE
        assert keys_with(shards.servers["a"], "order-17")
        for wrong in ("c~order-17", "~order-17", "B~1", "a b~1", "\x1b[2J~1"):
            with pytest.raises(NoSuchShard):
                await fleet.start(asked, run_id=wrong)
            with pytest.raises(RunNotFound):
                await fleet.get(wrong)
    async with Orchestrator(obedient(), settings=shards.settings("b")) as one:
        for elsewhere in ("order-18", "a~order-18"):
            with pytest.raises(OtherShard):
                await one.start(asked, run_id=elsewhere)
    assert charges(ledger) == Counter(["once"])


async def test_servers_that_change_their_names_or_their_place_are_refused(shards):
    shards.add("a", "b", workers=False)
    async with shards.orchestrator():
        pass
    url = {name: server.url for name, server in shards.servers.items()}
    for wrong in (f"a={url['b']} b={url['a']}", f"b={url['b']} a={url['a']}", f"x={url['a']} b={url['b']}"):
        settings = shards.settings().model_copy(update={"shards": wrong})
        with pytest.raises(InvalidSettings, match="TOOLFLEET_SHARDS"):
            async with ShardedOrchestrator(obedient(), settings=settings):
                pass


async def test_budgets_that_hold_on_one_shard_alone_are_named_at_the_start(shards, caplog):
    shards.add("a", "b", workers=False)
    there = shards.settings("b")
    async with aclosing(connect_async(there)) as client:
        await TenantBudgets(client, there).set("acme", "day", Bounds(usd=5))
    async with shards.orchestrator():
        said = [
            getattr(record, FACTS) for record in caplog.records if getattr(record, "event", "") == "counted_by_shard"
        ]
    assert [(each["shard"], each["budgets"], each["shares"]) for each in said] == [("b", 1, 0)]


async def test_new_runs_follow_the_weights(shards):
    shards.weights = {"b": 3}
    shards.add("a", "b", workers=False)
    async with shards.orchestrator() as fleet:
        begun = [shard_of(await fleet.submit("[]", model="nobody's")) for _ in range(8)]
    assert Counter(begun) == {"a": 2, "b": 6}
    assert "bb" in "".join(begun)
    assert "bbbb" not in "".join(begun)


async def test_without_any_shard_there_is_no_fleet_and_one_that_comes_later_is_taken_in(shards):
    shards.add("a", "b", workers=False)
    for server in shards.servers.values():
        server.kill()
    with pytest.raises(StoreUnreachable, match=r"shard a.*shard b"):
        async with shards.orchestrator():
            pass
    shards.servers["a"].start()
    async with shards.orchestrator() as fleet:
        assert list(fleet.missing) == ["b"]
        assert shard_of(await fleet.submit("[]", model="nobody's")) == "a"
        with pytest.raises(StoreUnreachable, match="shard b"):
            await fleet.get("b~1")
        shards.servers["b"].start()
        await until(lambda: not fleet.missing)
        assert {shard_of(await fleet.submit("[]", model="nobody's")) for _ in range(2)} == {"a", "b"}


def test_the_settings_of_shards_are_checked_together():
    def refused(match, **given):
        with pytest.raises(ValueError, match=match):
            Settings(**given)

    two = "a=redis://127.0.0.1:1/0 b=redis://127.0.0.1:2/0"
    refused("both say where", shards=two, redis_url="redis://127.0.0.1:3/0")
    refused("there are a, b", shards=two, shard="c")
    refused("names no shard", shard="a")
    refused("two shards have one URL", shards="a=redis://127.0.0.1:1/0 b=redis://127.0.0.1:1/0")
    refused("two shards have one name", shards="a=redis://127.0.0.1:1/0 a=redis://127.0.0.1:2/0")
    refused("cannot name a shard", shards="A=redis://127.0.0.1:1/0")
    refused("cannot name a shard", shards=f"{'a' * 100_000}=redis://127.0.0.1:1/0")
    refused("a weight is a number", shards="a*0=redis://127.0.0.1:1/0")
    refused("a weight is a number", shards=f"a*{'9' * 5000}=redis://127.0.0.1:1/0")
    refused("a weight is a number", shards="a*²=redis://127.0.0.1:1/0")
    refused("secret is required", shards=f"{two} c=redis://10.0.0.1:1/0")
    refused("leave out TOOLFLEET_BROKER_URL", shards=two, broker_url="amqp://x")
    with pytest.raises(ValueError, match="is no shard") as said:
        Settings(shards="redis://:hidden@127.0.0.1:1/0")
    assert "hidden" not in str(said.value).partition("[type=")[0]
    assert Settings(shards=two).redis_url == ""
    assert Settings(shards=two, shard="b").redis_url == "redis://127.0.0.1:2/0"
    again = {name.removeprefix("TOOLFLEET_").lower(): value for name, value in bound_environment(two).items()}
    assert (again["shards"], again["shard"], again["redis_url"]) == (two, "b", "redis://127.0.0.1:2/0")


def bound_environment(two):
    return Settings(shards=two).of_shard("b").as_environment()
