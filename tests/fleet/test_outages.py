"""What a fleet makes of a Redis that restarts, hangs or refuses: it waits, and no call is lost or repeated."""

import asyncio
import json
import random
import signal
import tempfile
from pathlib import Path

import pytest
import redis
from durable_server import DurableServer
from fleets import asking, fleet_of
from processes import alive, lines

from toolfleet import FunctionModel
from toolfleet.errors import StoreUnreachable
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet.catalog import MAX_AGE_S
from toolfleet.orchestrator.run.states import State


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # elsewhere a socket's path may be too long
        server = DurableServer(Path(folder))
        server.start()
        yield server
        server.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def fleet(server):
    with fleet_of(pools={"io": 1, "cpu": 1}, redis_url=server.url, lease_s=3, heartbeat_s=0.5) as running:
        yield running


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_while_calls_run_loses_none_and_repeats_none(how, server, orchestrator, stage, tmp_path):
    file = tmp_path / "effects"
    played = [("play_once", {"stage": stage.path}), ("play_in_process_once", {"stage": stage.path})]
    written = [("write_line", {"path": str(file), "seconds": 0.3})] * 150
    answering = asyncio.create_task(orchestrator.execute(asking(*played, *written)))
    actors = [await stage.enters() for _ in played]
    server.end(how)
    actors[0].returns("while it was away")
    await asyncio.to_thread(server.start)
    actors[1].returns("after it came back")
    contents = [answer.content for answer in await answering]
    assert sorted(contents[:2]) == ["after it came back", "while it was away"]
    assert contents[2:] == ["written"] * 150
    assert len(lines(file)) == 150
    assert len(stage.actors) == 2


async def test_calls_sent_while_redis_is_away_are_done_when_it_is_back(server, orchestrator):
    await orchestrator.catalog.offered()  # known for a second, so that only sending is put to the test
    server.end(signal.SIGTERM)
    answering = asyncio.create_task(orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(50)))))
    await asyncio.sleep(0)
    await asyncio.to_thread(server.start)
    assert [answer.content for answer in await answering] == [str(n) for n in range(50)]


async def test_a_server_that_hangs_for_longer_than_the_lease_repeats_nothing(server, orchestrator, stage):
    answering = asyncio.create_task(orchestrator.execute(asking(*[("play_once", {"stage": stage.path})] * 5)))
    actors = [await stage.enters() for _ in range(5)]
    server.process.send_signal(signal.SIGSTOP)
    for actor in actors:
        actor.returns("once")
        assert await actor.leaves() == "returned"
    await asyncio.sleep(4)  # a lease and more, in which nobody can renew anything
    server.process.send_signal(signal.SIGCONT)
    assert [answer.content for answer in await answering] == ["once"] * 5
    assert len(stage.actors) == 5


async def test_a_full_server_is_waited_for(fleet, server, orchestrator, stage):
    answering = asyncio.create_task(orchestrator.execute(asking(("play_once", {"stage": stage.path}))))
    actor = await stage.enters()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        try:
            actor.returns("kept in hand")
            assert await actor.leaves() == "returned"
            waiting = asyncio.create_task(orchestrator.execute(asking(("echo", {"value": "sent later"}))))
            done, _ = await asyncio.wait([answering, waiting], timeout=1.5)
            assert not done
        finally:
            client.config_set("maxmemory", 0)
    assert [answer.content for answer in await answering] == ["kept in hand"]
    assert [answer.content for answer in await waiting] == ["sent later"]


TURNS, RUNS = 6, 8
REFUSALS = {
    "out of memory": ("maxmemory", 1, 0),
    "no replicas": ("min-replicas-to-write", 1, 0),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_server_that_refuses_writes_for_seconds_costs_runs_nothing_but_time(fleet, server, refusal, tmp_path):
    """Again and again, at whatever step they are: no run fails, stands still or makes a call twice."""
    setting, refuses, takes = REFUSALS[refusal]

    def said(messages):
        turn = sum(isinstance(message, ToolMessage) for message in messages)
        if turn == TURNS:
            return AssistantMessage(content="done")
        asked = {"path": str(tmp_path / f"{messages[0].content}-{turn}"), "seconds": 0.2}
        call = RequestedCall(id=f"call-{turn}", name="write_line", arguments=json.dumps(asked))
        return AssistantMessage(tool_calls=(call,))

    async with Orchestrator(FunctionModel(said), settings=fleet.settings) as orchestrator:
        begun = [await orchestrator.start(f"run-{n}") for n in range(RUNS)]
        with redis.Redis.from_url(server.url) as client:
            try:
                for _ in range(8):
                    # At random: whoever tries again does so in steps of its own.
                    await asyncio.sleep(random.uniform(0.1, 0.6))
                    client.config_set(setting, refuses)
                    await asyncio.sleep(random.uniform(0.2, 1.0))
                    client.config_set(setting, takes)
            finally:
                client.config_set(setting, takes)
        ended = await asyncio.gather(*map(orchestrator.wait, begun))
    assert {(run.state, run.answer) for run in ended} == {(State.DONE, "done")}
    assert {len(lines(tmp_path / f"run-{n}-{turn}")) for n in range(RUNS) for turn in range(TURNS)} == {1}


async def test_an_outage_that_outlasts_the_announcements_takes_no_tool_away(fleet, server, orchestrator):
    """The worker is frozen across it, and so cannot be the first one to come back."""
    assert "blocking_echo" in await orchestrator.catalog.offered()
    [worker] = alive(fleet, "cpu")
    worker.process.send_signal(signal.SIGSTOP)
    try:
        server.end(signal.SIGTERM)
        await asyncio.to_thread(server.start)
        with redis.Redis.from_url(server.url) as client:
            client.zadd(
                fleet.settings.keys.workers(), dict.fromkeys(client.zrange(fleet.settings.keys.workers(), 0, -1), 1)
            )
            client.delete(*client.keys(fleet.settings.keys.worker("*")))
        await asyncio.sleep(2 * MAX_AGE_S)  # the catalog looks again
        answering = asyncio.create_task(orchestrator.execute(asking(("blocking_echo", {"value": "patience"}))))
        done, _ = await asyncio.wait([answering], timeout=MAX_AGE_S)
        assert not done
    finally:
        worker.process.send_signal(signal.SIGCONT)
    assert [answer.content for answer in await answering] == ["patience"]


async def test_an_orchestrator_without_redis_says_where_it_looked(fleet):
    settings = fleet.settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    with pytest.raises(StoreUnreachable, match=r"Redis at redis://127\.0\.0\.1:1/0 does not answer"):
        async with Orchestrator(settings=settings):
            pass
