"""Tools with `cache_s`: one run for all who ask the same at once, whoever is lost meanwhile.."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fleets import HERE
from processes import WAIT_S, kill, lines, replenish, until_gone, worker_of

from toolfleet.connections import connect_async
from toolfleet.kept_results import MAX_BYTES
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["asked_tools"], pools={"io": 2, "cpu": 1}, environment=HERE, lease_s=3.0, heartbeat_s=0.5
    ) as running:
        yield running


@pytest.fixture
async def call(fleet):
    replenish(fleet, io=2, cpu=1)
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        yield orchestrator.call


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


async def until(happened):
    async with asyncio.timeout(WAIT_S):
        while not happened():
            await asyncio.sleep(0.01)


async def until_waiting(fleet, count, queue="io"):
    """Wait until so many calls wait for an answer, in no worker."""
    async with connect_async(fleet.settings) as client, asyncio.timeout(WAIT_S):
        while await client.zcard(fleet.settings.keys.scheduled(queue)) != count:
            await asyncio.sleep(0.01)


def asked(call, ledger, gate, count, **options):
    one = {"ledger": str(ledger), "gate": str(gate)}
    return [asyncio.create_task(call("look_up", one, patience_s=60, **options)) for _ in range(count)]


async def test_F14_a_hundred_who_ask_the_same_at_once_are_answered_by_one_run(fleet, call, ledger, tmp_path):
    gate = tmp_path / "gate"
    calls = asked(call, ledger, gate, 100)
    await until_waiting(fleet, 99)
    gate.touch()
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*calls)
    assert {result.content for result in results} == {"found by the 1. run"}
    assert sum("cached" not in result.attributes for result in results) == 1
    assert len(lines(ledger)) == 1


async def test_F14_what_one_tenant_is_told_no_other_is(call, ledger, tmp_path):
    gate = tmp_path / "gate"
    calls = {tenant: asked(call, ledger, gate, 10, tenant=tenant) for tenant in ("acme", "umbrella", "")}
    await until(lambda: len(lines(ledger)) == 3)
    gate.touch()
    answers = {tenant: {result.content for result in await asyncio.gather(*some)} for tenant, some in calls.items()}
    assert all(len(told) == 1 for told in answers.values())
    assert len(lines(ledger)) == 3


async def test_F14_the_holder_is_killed_and_exactly_one_takes_over(fleet, call, ledger, tmp_path):
    gate = tmp_path / "gate"
    calls = asked(call, ledger, gate, 20)
    await until_waiting(fleet, 19)
    [first] = lines(ledger)
    pid = int(first.split()[1])
    kill(worker_of(fleet, pid))
    until_gone(pid)
    await until(lambda: len(lines(ledger)) == 2)
    gate.touch()
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*calls)
    assert {result.content for result in results} == {"found by the 2. run"}
    assert len(lines(ledger)) == 2


async def test_a_message_of_the_holder_that_is_lost_keeps_nobody_waiting(fleet, call, ledger, tmp_path):
    gate = tmp_path / "gate"
    calls = asked(call, ledger, gate, 3)
    await until_waiting(fleet, 2)
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        async with asyncio.timeout(WAIT_S):
            while len(finders := [key async for key in client.scan_iter(keys.finder("*"))]) != 1:
                await asyncio.sleep(0.01)
        [finder] = finders
        stream, entry = await client.hmget(finder, "stream", "entry")
        await client.xdel(stream, entry)
    await until(lambda: len(lines(ledger)) == 2)
    gate.touch()
    await asyncio.gather(*calls)
    assert len(lines(ledger)) == 2


async def test_who_asks_later_is_given_the_answer_that_is_kept_until_its_time_is_over(call, ledger):
    one = {"ledger": str(ledger)}
    first = await call("look_up_briefly", one)
    again = await call("look_up_briefly", one)
    assert (first.content, again.content) == ("found by the 1. run",) * 2
    assert (first.attributes, again.attributes) == ({}, {"cached": True})
    await asyncio.sleep(0.3)  # as long as it is kept
    assert (await call("look_up_briefly", one)).content == "found by the 2. run"


async def test_the_order_of_arguments_makes_no_other_question_and_another_value_does(call, ledger):
    path = f'"ledger": "{ledger}"'
    said = [
        (await call("look_up", text)).content
        for text in (
            f'{{{path}, "query": {{"a": 1, "b": 2}}}}',
            f'{{"query": {{"b": 2, "a": 1}}, {path}}}',
            f'{{"query": {{"b": 2, "a": 1}}, {path}, "gate": "",}}',
            f'{{"query": {{"b": 2, "a": 3}}, {path}}}',
        )
    ]
    assert said == ["found by the 1. run"] * 3 + ["found by the 2. run"]


async def test_a_failure_is_kept_for_nobody_and_those_who_wait_try_one_after_the_other(fleet, call, ledger, tmp_path):
    gate = tmp_path / "gate"
    one = {"ledger": str(ledger), "times": 2, "gate": str(gate)}
    calls = [asyncio.create_task(call("fail_at_first", one, patience_s=60)) for _ in range(10)]
    await until_waiting(fleet, 9)
    gate.touch()
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*calls)
    assert sorted(result.type for result in results) == ["failed"] * 2 + ["returned"] * 8
    assert len(lines(ledger)) == 3


@pytest.mark.parametrize(
    ("tool", "asked"), [("long_answer", {"characters": MAX_BYTES + 1}), ("sets_state", {})], ids=lambda it: str(it)[:12]
)
async def test_what_may_not_be_given_again_is_asked_for_by_each(call, ledger, tool, asked):
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*(call(tool, {"ledger": str(ledger)} | asked) for _ in range(5)))
    assert {result.type for result in results} == {"returned"}
    assert len(lines(ledger)) == 5


async def test_an_answer_is_shared_by_those_alone_of_whom_the_tool_sees_the_same(call, ledger):
    one = {"ledger": str(ledger)}
    rome = await call("greet", one, context={"city": "Rome", "mood": "good"}, subject="ada")
    assert (await call("greet", one, context={"city": "Rome"}, subject="bob")).content == rome.content
    assert (await call("greet", one, context={"city": "Oslo"})).content == "Oslo, by the 2. run"
    assert (await call("recognise", one, subject="ada")).content == "ada, by the 3. run"
    assert (await call("recognise", one, subject="bob")).content == "bob, by the 4. run"
    assert (await call("recognise", one, subject="ada")).content == "ada, by the 3. run"


async def test_one_who_waits_can_be_called_off_and_the_others_do_not_notice(fleet, call, ledger, tmp_path):
    gate = tmp_path / "gate"
    calls = asked(call, ledger, gate, 5)
    await until_waiting(fleet, 4)
    calls[-1].cancel()
    gate.touch()
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*calls[:-1])
    assert {result.content for result in results} == {"found by the 1. run"}
    assert len(lines(ledger)) == 1


async def test_processes_share_their_answers_too_and_one_who_waits_holds_none(call, ledger):
    one = {"ledger": str(ledger), "seconds": 1.0}
    calls = [asyncio.create_task(call("look_up_in_process", one, patience_s=60)) for _ in range(10)]
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*calls)
    assert {result.content for result in results} == {"found by the 1. run"}
    assert len(lines(ledger)) == 1


async def test_nothing_is_left_behind_but_what_is_kept(fleet, call, tmp_path):
    await call("look_up", {"ledger": str(tmp_path / "other")})
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        await until_nothing(client, keys.finder("*"))
        await until_nothing(client, keys.waiting_for_answer("*"))
        kept = [key async for key in client.scan_iter(keys.cached("*"))]
        assert kept
        assert all([await client.pttl(key) > 0 for key in kept])
    assert not Path(tmp_path / "ledger").exists()


async def until_nothing(client, pattern):
    async with asyncio.timeout(WAIT_S):
        while [key async for key in client.scan_iter(pattern)]:
            await asyncio.sleep(0.05)


async def test_one_who_takes_over_keeps_to_the_tools_limit_and_one_who_waits_does_not_use_it_up(call, ledger):
    asked = [{"ledger": str(ledger), "query": query, "times": 1} for query in (1, 2, 3)] * 5
    async with asyncio.timeout(WAIT_S):
        results = await asyncio.gather(*(call("narrow", each, patience_s=60) for each in asked))
    assert sorted(result.type for result in results) == ["failed"] * 3 + ["returned"] * 12
    words = [line.split()[0] for line in lines(ledger)]
    assert words == ["in", "out"] * 6
