"""Limits with real workers on a real server, judged by a ledger that the tool writes."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest
from post import NOTHING, Post
from processes import WAIT_S, kill, replenish

from toolfleet.calls import FailureKind, Returned
from toolfleet.limits import Gate
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.fleet.limits import SAY
from toolfleet.orchestrator.fleet.queue_position import QueuePositions
from toolfleet.streams import Priority
from toolfleet.streams.direct import DirectPublisher, TaskMessage
from toolfleet.waiting.explain import why

LEASE_S = 3.0


@pytest.fixture(scope="module")
def fleet():
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with LocalFleet(
        ["limited_tools"], pools={"io": 2}, environment=here, lease_s=LEASE_S, heartbeat_s=0.5, max_deliveries=9
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    replenish(fleet, io=2)
    post = Post(fleet.settings)
    yield post
    await post.aclose()


def limited(post, ledger, names, gates, seconds=0.2, tenant=""):
    """Messages of calls with these gates, as an orchestrator makes them."""
    for name in names:
        call = post.call("hold", {"ledger": str(ledger), "name": name, "seconds": seconds})
        headers = {"lang": "py", "task": "hold", "id": call.call_id}
        body = orjson.dumps([[*post.seal.close_call(call)], {}, NOTHING])
        yield TaskMessage(
            "io",
            Priority.NORMAL,
            headers,
            body,
            tenant=tenant,
            run_id=call.run_id,
            gates=gates,
            deadline_unix_s=call.deadline_unix_s,
        )


async def send(post, messages):
    await DirectPublisher(post.client, post.keys).publish(list(messages))


async def names_back(post, count):
    results = [(await post.result())[1] for _ in range(count)]
    assert all(isinstance(result, Returned) for result in results), results
    return sorted(result.content for result in results)


def lines(ledger):
    return [line.split() for line in ledger.read_text().splitlines()]


def until_lines(ledger, count):
    end_s = time.monotonic() + WAIT_S
    while not ledger.exists() or len(lines(ledger)) < count:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def most_at_once(ledger):
    """How many calls were between begin and end at most. One that begins again after a kill is the same call."""
    running, most = set(), 0
    for what, name, _ in lines(ledger):
        running.add(name) if what == "begins" else running.discard(name)
        most = max(most, len(running))
    return most


def worker_with_calls(fleet: LocalFleet, post: Post):
    return [worker for worker in fleet.workers if worker.process.poll() is None]


async def test_F1_a_rate_is_kept_by_two_workers_and_used(post, tmp_path):
    names = [f"{n:03}" for n in range(60)]
    await send(post, limited(post, tmp_path / "l", names, (Gate("rate", "hold", "", 20.0, 1),), seconds=0))
    assert await names_back(post, 60) == names
    begins = [float(at) for what, _, at in lines(tmp_path / "l") if what == "begins"]
    # 59 pauses of 50 ms. Workers come back in time, without a timer for each call: long before once a second.
    assert 2.8 <= begins[-1] - begins[0] < 20


async def test_F5_never_more_hold_a_place_than_there_are_however_many_are_killed(fleet, post, tmp_path):
    names = [f"{n:03}" for n in range(24)]
    await send(post, limited(post, tmp_path / "l", names, (Gate("concurrency", "hold", "k", 2.0, 0),)))
    back = 0
    for _ in range(3):
        await names_back(post, 4)
        back += 4
        kill(worker_with_calls(fleet, post)[0])
        replenish(fleet, io=2)
    await names_back(post, len(names) - back)
    assert {name for what, name, _ in lines(tmp_path / "l") if what == "ends"} == set(names)
    assert most_at_once(tmp_path / "l") == 2


async def test_F6_a_place_and_a_rate_on_one_tool_go_on_past_a_killed_worker(fleet, post, tmp_path):
    gates = (Gate("concurrency", "hold", "", 1.0, 0), Gate("rate", "hold", "r", 4.0, 1))
    names = [f"{n:03}" for n in range(8)]
    await send(post, limited(post, tmp_path / "l", names, gates, seconds=0.05))
    await names_back(post, 2)
    kill(worker_with_calls(fleet, post)[0])
    replenish(fleet, io=2)
    await names_back(post, 6)
    assert most_at_once(tmp_path / "l") == 1


async def test_F8_what_was_cancelled_while_it_waited_runs_on_no_worker_that_came_since(fleet, post, tmp_path):
    gates = [(Gate("concurrency", "hold", f"late{n}", 1.0, 0),) for n in range(6)]
    first = [m for n, own in enumerate(gates) for m in limited(post, tmp_path / "l", [f"first{n}"], own, 4 + n / 4)]
    await send(post, first)
    until_lines(tmp_path / "l", 6)
    second = [m for n, own in enumerate(gates) for m in limited(post, tmp_path / "l", [f"second{n}"], own)]
    await send(post, second)
    for message in second:  # as a cancel leaves it for workers that are not there yet
        await post.client.set(post.keys.cancelled(message.headers["id"]), "1", ex=60)
    replenish(fleet, io=4)
    results = [(await post.result())[1] for _ in range(12)]
    assert sorted(result.type for result in results) == ["failed"] * 6 + ["returned"] * 6
    assert {result.kind for result in results if result.type == "failed"} == {FailureKind.CANCELLED}
    assert not [line for line in lines(tmp_path / "l") if line[1].startswith("second")]


async def test_nothing_is_left_of_limits_once_their_calls_are_done(post, tmp_path):
    gate = Gate("concurrency", "hold", "left", 3.0, 0)
    await send(post, limited(post, tmp_path / "l", [str(n) for n in range(9)], (gate,), tenant="acme"))
    began_s = time.monotonic()
    await names_back(post, 9)
    assert time.monotonic() - began_s < 20
    assert await post.client.hlen(post.keys.holders("concurrency|hold|left")) == 0
    assert await post.client.hlen(post.keys.room_calls("io")) == 0


async def test_F11_what_people_say_of_a_limit_holds_at_once_for_those_who_wait(post, tmp_path):
    gate = Gate("rate", "hold", "changed", 0.01, 1)
    await send(post, limited(post, tmp_path / "l", ["first", "second"], (gate,), seconds=0))
    assert await names_back(post, 1) == ["first"]
    keys = post.keys
    places = [keys.limits(), keys.limits_audit(), keys.limits_said()]
    said = ["hold|changed", orjson.dumps({"rate": 50}), -1, "ada", "set", 100, 0]
    began_s = time.monotonic()
    await post.client.register_script(SAY)(keys=places, args=said)
    assert await names_back(post, 1) == ["second"]
    assert time.monotonic() - began_s < 5  # and not the hundred seconds of the other rate
    await post.client.delete(keys.limits())


async def test_why_a_call_waits_is_told(post, tmp_path):
    gate = Gate("concurrency", "hold", "tenant=acme", 1.0, 0)
    messages = list(limited(post, tmp_path / "l", ["one", "two", "three"], (gate,), seconds=1.0, tenant="acme"))
    await send(post, messages)
    until_lines(tmp_path / "l", 1)
    [running, _, last] = [message.headers["id"] for message in messages]
    waiting = (await why(post.client, post.keys, [last, running], "io", Priority.NORMAL))[last]
    assert waiting is not None
    assert (waiting.reason, waiting.before, waiting.in_room) == ("concurrency tenant=acme 1/1", 1, 2)
    assert (waiting.others_between, waiting.gate, waiting.estimate_s) == (False, gate, None)
    assert await why(post.client, post.keys, [running], "io", Priority.NORMAL) == {}
    await names_back(post, 3)


async def test_why_many_calls_wait_is_asked_once_for_all_of_them(post, tmp_path):
    gate = Gate("concurrency", "hold", "tenant=acme", 1.0, 0)
    names = [str(n) for n in range(8)]
    messages = list(limited(post, tmp_path / "l", names, (gate,), seconds=0.5, tenant="acme"))
    await send(post, messages)
    until_lines(tmp_path / "l", 1)
    waiting = {message.headers["id"]: ("io", Priority.NORMAL) for message in messages[3:]}
    positions = QueuePositions(post.client, post.settings)
    await positions.of_all(waiting)  # the script is loaded

    async def asked() -> int:
        stats = await post.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "get", "smembers"))

    costs = []
    for _ in range(5):
        before = await asked()
        found = await positions.of_all(waiting)
        costs.append(await asked() - before)
    # The least of a few times: the server counts what workers ask meanwhile as well.
    assert min(costs) <= 4, costs
    assert {each.waiting.reason for each in found.values()} == {"concurrency tenant=acme 1/1"}
    assert len({each.before for each in found.values()}) == len(waiting)
    await names_back(post, len(names))


async def test_how_long_a_call_waits_for_a_rate_is_told(post, tmp_path):
    gate = Gate("rate", "hold", "told", 0.5, 1)
    messages = list(limited(post, tmp_path / "l", ["one", "two", "three"], (gate,), seconds=0))
    await send(post, messages)
    until_lines(tmp_path / "l", 1)
    third = messages[2].headers["id"]
    waiting = (await why(post.client, post.keys, [third], "io", Priority.NORMAL))[third]
    assert waiting is not None
    assert (waiting.reason, waiting.before) == ("rate told 0.5/s", 1)
    assert 2 <= waiting.estimate_s <= 4
    await names_back(post, 3)
