"""What becomes of calls whose worker is lost: repeated where that is harmless, in doubt where it is not, never both."""

import asyncio
import signal
import time

import pytest
from fleets import asking, fleet_of
from processes import alive, kill, lines, replenish, until_gone, worker_of

from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator

LEASE_S = 3.0


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 2, "cpu": 1}, lease_s=LEASE_S, heartbeat_s=0.5, max_deliveries=3) as running:
        yield running


@pytest.fixture
def two_workers(fleet):
    replenish(fleet, io=2, cpu=1)
    return fleet


@pytest.fixture
async def orchestrator(two_workers):
    async with Orchestrator(settings=two_workers.settings) as running:
        yield running


@pytest.fixture
def begin(orchestrator):
    """Start calls; a task whose result is their messages."""

    def begun(*calls, **options):
        return asyncio.create_task(orchestrator.execute(asking(*calls), **options))

    return begun


async def test_a_killed_workers_repeatable_call_is_done_by_another(fleet, begin, stage):
    answer = begin(("play", {"stage": stage.path}))
    first = await stage.enters()
    killed_at = time.monotonic()
    kill(worker_of(fleet, first.pid))
    second = await stage.enters()
    assert time.monotonic() - killed_at < LEASE_S
    assert (second.call_id, second.seen["attempt"]) == (first.call_id, 2)
    assert second.pid != first.pid
    second.returns("survived")
    [message] = await answer
    assert message.content == "survived"


async def test_a_killed_workers_call_with_an_effect_is_in_doubt_and_never_repeated(fleet, begin, ask, stage):
    answer = begin(("play_once", {"stage": stage.path}))
    first = await stage.enters()
    kill(worker_of(fleet, first.pid))
    [message] = await answer
    assert message.is_error
    assert "may or may not have happened" in message.content
    assert await ask(("echo", {"value": "still here"})) == ["still here"]
    assert len(stage.actors) == 1


async def test_calls_that_waited_behind_a_killed_worker_all_complete(fleet, begin, stage, tmp_path):
    file = tmp_path / "effects"
    playing = begin(("play", {"stage": stage.path}))
    first = await stage.enters()
    many = begin(*(("write_line", {"path": str(file), "seconds": 0.05}) for _ in range(300)))
    kill(worker_of(fleet, first.pid))
    (await stage.enters()).returns()
    await playing
    contents = [message.content for message in await many]
    in_doubt = [content for content in contents if "may or may not" in content]
    assert len(in_doubt) + contents.count("written") == 300
    assert contents.count("written") <= len(lines(file)) <= 300


async def test_a_killed_prefork_worker_is_replaced_by_another(fleet, begin, stage):
    repeatable = begin(("play_in_process", {"stage": stage.path}))
    first = await stage.enters()
    once = begin(("play_in_process_once", {"stage": stage.path}))
    second = await stage.enters()
    kill(worker_of(fleet, first.pid))
    until_gone(first.pid)
    until_gone(second.pid)
    replenish(fleet, cpu=1)
    third = await stage.enters()
    assert third.call_id == first.call_id
    third.returns("survived")
    [survived], [doubtful] = await repeatable, await once
    assert survived.content == "survived"
    assert "may or may not have happened" in doubtful.content
    assert len(stage.actors) == 3


async def test_a_killed_child_process_costs_its_call_one_attempt_and_its_siblings_nothing(ask, tmp_path):
    calls = [("die", {"path": str(tmp_path / "deaths"), "times": 1})]
    calls += [("blocking_echo", {"value": n}) for n in range(20)]
    assert await ask(*calls) == ["survived attempt 2", *map(str, range(20))]


async def test_a_killed_child_process_leaves_a_call_with_an_effect_in_doubt(ask, tmp_path):
    deaths = tmp_path / "deaths"
    [content] = await ask(("die_once", {"path": str(deaths), "times": 9}))
    assert "may or may not have happened" in content
    assert deaths.read_text() == "x"


async def test_a_call_that_kills_every_process_ends_as_crashed_among_the_dead_letters(fleet, ask, tmp_path):
    deaths = tmp_path / "deaths"
    [content] = await ask(("die", {"path": str(deaths), "times": 99}))
    assert content.startswith("die crashed: the worker was lost in each of 3 attempts")
    assert deaths.read_text() == "xxx"
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        [(_, letter)] = await client.xrevrange(keys.dead_letters(), count=1)
        assert (letter[b"reason"], letter[b"task"]) == (b"crashed", b"die")
        assert await client.hget(keys.counters(), "dead:crashed") == b"1"


async def test_a_blocking_tool_beyond_its_limit_is_timed_out_and_its_process_is_gone(ask, begin, stage):
    answer = begin(("play_too_long", {"stage": stage.path}))
    actor = await stage.enters()
    [message] = await answer
    assert message.content == "play_too_long took longer than its limit; its process was killed."
    assert await actor.leaves() == ""
    until_gone(actor.pid)
    assert await ask(("blocking_echo", {"value": "next"})) == ["next"]


async def test_a_blocking_tool_beyond_its_calls_deadline_is_timed_out_and_its_process_is_gone(begin, stage):
    answer = begin(("play_in_process_once", {"stage": stage.path}), timeout_s=0.5)
    actor = await stage.enters()
    [message] = await answer
    killed = "play_in_process_once took longer than its limit; its process was killed."
    assert message.content == f"{killed} Its effect may or may not have happened."
    until_gone(actor.pid)


@pytest.mark.parametrize("tool", ["play", "play_once"])
async def test_L7_a_worker_that_froze_beyond_its_lease_cannot_add_a_second_result(tool, fleet, begin, ask, stage):
    answer = begin((tool, {"stage": stage.path}))
    frozen = await stage.enters()
    worker = worker_of(fleet, frozen.pid)
    worker.process.send_signal(signal.SIGSTOP)
    try:
        if tool == "play":
            (await stage.enters()).returns("in time")
        [message] = await answer
        counted = await returned_in(fleet)
        frozen.returns("late")
    finally:
        worker.process.send_signal(signal.SIGCONT)
    assert await frozen.leaves() == "returned"
    assert message.content == "in time" if tool == "play" else "may or may not" in message.content
    # It goes on serving: both workers are needed for more calls than one has slots... at least one serves, none died.
    assert worker in alive(fleet, "io")
    assert await ask(*(("echo", {"value": n}) for n in range(50))) == [str(n) for n in range(50)]
    assert await returned_in(fleet) == counted + 50


async def returned_in(fleet):
    """How many calls of a fleet have returned."""
    async with connect_async(fleet.settings) as client:
        return int(await client.hget(fleet.settings.keys.calls_settled(), "returned") or 0)
