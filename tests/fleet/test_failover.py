"""The primary is lost and a replica takes its place, by a real Sentinel, while calls run that must not be repeated."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from fleets import HERE, asking
from processes import WAIT_S, lines
from replicated import replicated

from toolfleet.local.fleet import LocalFleet
from toolfleet.settings import new_secret

SECRET = new_secret()
IN_DOUBT = "may or may not have happened"


@pytest.fixture
def servers(tmp_path):
    with replicated(tmp_path) as running:
        yield running


@pytest.fixture
def fleet(servers):
    """What is acknowledged is on one replica of two, so that another one can take its place as a replica."""
    with LocalFleet(
        ["rolling_tools"],
        pools={"io": 1, "cpu": 1},
        environment=HERE,
        redis_url=servers.url,
        secret=SECRET,
        lease_s=4.0,
        heartbeat_s=1.0,
        shutdown_grace_s=1.0,
        wait_replicas=1,
        wait_replicas_s=0.3,
    ) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


async def answers(orchestrator, ledger, *calls):
    asked = asking(*((tool, {"ledger": str(ledger), "what": what}) for tool, what in calls))
    return [message.content for message in await orchestrator.execute(asked)]


def effects(ledger):
    return Counter(line.split(" ", 1)[1] for line in lines(ledger))


async def until(is_so):
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.05)


async def test_D13_nothing_begins_that_only_the_primary_knows_of(servers, fleet, ledger, orchestrators_of):
    orchestrator = await orchestrators_of(fleet)
    assert await answers(orchestrator, ledger, ("note", "before")) == ["noted before"]
    servers.freeze_replicas()
    calls = [("note", "a"), ("note", "b"), ("note_in_process", "c")]
    answering = asyncio.create_task(answers(orchestrator, ledger, *calls))
    await until(lambda: all("of 1 replicas know of them" in worker.log_path.read_text() for worker in fleet.workers))
    assert effects(ledger) == {"before": 1}
    servers.kill_primary()
    servers.thaw_replicas()
    assert await answering == ["noted a", "noted b", "noted c"]
    assert effects(ledger) == {"before": 1, "a": 1, "b": 1, "c": 1}


async def test_D13_a_failover_under_load_repeats_nothing_and_loses_nothing(servers, fleet, ledger, orchestrators_of):
    orchestrator = await orchestrators_of(fleet)
    first_port = servers.primary_port
    answered = {}
    is_enough = asyncio.Event()

    async def converse(name):
        for number in range(10_000):
            words = [f"{name}-{number}-{each}" for each in range(5)]
            tools = ["note"] * 4 + ["note_in_process"]
            said = await answers(orchestrator, ledger, *zip(tools, words, strict=True))
            answered.update(zip(words, said, strict=True))
            if is_enough.is_set():
                return

    conversing = [asyncio.create_task(converse(name)) for name in "abcd"]
    await until(lambda: len(answered) > 50)
    servers.kill_primary()
    await until(lambda: servers.primary_port != first_port)
    after = len(answered)
    await until(lambda: len(answered) > after + 50)
    is_enough.set()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*conversing)

    done = effects(ledger)
    assert set(done.values()) == {1}
    for word, said in answered.items():
        assert (said == f"noted {word}" and done[word] == 1) or IN_DOUBT in said, (word, said, done[word])
