"""Who goes first where many wait at shut gates, on a real server, by a clock that is set."""

from __future__ import annotations

import heapq

import pytest

from benchmarks.room_transport import Transport
from toolfleet.limits import Gate
from toolfleet.waiting.model import Call

ONE_AT_ONCE = Gate("concurrency", "t", "", 1.0, 0)
NEVER_MS = 9_999_999_999_999


def names(deliveries):
    return [delivery[2] for delivery in deliveries]


def levels_of_starts(transport, count):
    """The levels of so many calls that start one after the other."""
    levels = []
    for _ in range(count):
        [one] = transport.fetch(4, 4)
        levels.append(int(one[0].rpartition(":")[2]))
        transport.advance(10)
        transport.settle(one)
    return levels


def test_people_go_before_batches_at_a_gate_that_both_wait_at_and_batches_still_move(transport):
    transport.fetch(4, 4)
    transport.publish([Call(f"a.0.{n:03}", 0, "a", "r", (ONE_AT_ONCE,)) for n in range(400)])
    levels_of_starts(transport, 10)
    transport.publish([Call(f"b.6.{n:03}", 6, "b", "r", (ONE_AT_ONCE,)) for n in range(400)])
    levels = levels_of_starts(transport, 200)
    assert levels.count(0) >= 185
    assert levels.count(6) >= 8


def test_a_tools_pause_holds_for_a_key_whose_own_pause_is_over(transport):
    transport.fetch(4, 4)
    transport.say("t", {"paused_until_ms": NEVER_MS})
    transport.say("t|tenant=a", {"paused_until_ms": transport.now - 60_000})
    transport.publish([Call("a.1.1", gates=(Gate("rate", "t", "tenant=a", 100.0, 1),))])
    assert transport.fetch(4, 4) == []
    transport.say("t", {})
    assert names(transport.fetch(4, 4)) == ["a.1.1"]


@pytest.mark.parametrize("gates", [(), (ONE_AT_ONCE,)])
def test_a_queue_whose_name_ends_almost_as_a_lanes_has_its_own_room(server, gates):
    transport = Transport(server.client, "eu.lane-7")
    transport.fetch(50, 50)
    transport.publish([Call(f"a.1.{n:02}", gates=gates) for n in range(20)])
    came = []
    for _ in range(20):
        running = transport.fetch(50, 50)
        came += names(running)
        for delivery in running:
            transport.settle(delivery)
    assert len(came) == 20


def test_a_lane_has_the_limits_of_its_queue(server):
    transport = Transport(server.client, "io.lane-0123456789ab")
    transport.publish([Call(f"a.1.{n}", gates=(ONE_AT_ONCE,)) for n in range(2)])
    assert transport.client.hget(transport.keys.room("io"), "plain") == b"2"


def test_what_has_waited_past_its_deadline_is_sent_on_whatever_gate_it_waits_at(transport):
    transport.fetch(50, 50)
    transport.say("t", {"paused_until_ms": NEVER_MS})
    gate = Gate("rate", "t", "", 10.0, 1)
    transport.publish([Call(f"a.1.{n:03}", gates=(gate,), ends_ms=transport.now + 1000) for n in range(120)])
    transport.publish([Call("a.2.1", gates=(gate,), ends_ms=transport.now + 3_600_000)])
    due_ms, none = transport.fetched(50, 0)
    assert none == []
    assert due_ms <= 1000
    transport.advance(1000)
    late = [delivery for _ in range(3) for delivery in transport.fetch(50, 0)]
    assert len(late) == 120
    assert all(delivery[3] == [] for delivery in late)  # it has passed no limit
    assert transport.waiting == {"a.2.1"}


@pytest.mark.parametrize("per_s", [10, 100])
def test_of_many_idle_workers_one_comes_back_for_each_opening(transport, per_s):
    workers = 50
    gate = Gate("rate", "t", "", float(per_s), 1)
    for worker in range(workers):
        transport.fetch(10, 10, f"w{worker}")
    for at in (0, 200):
        transport.publish([Call(f"a.1.{n + at:03}", gates=(gate,)) for n in range(200)])
    coming = [(transport.now, worker) for worker in range(workers)]
    end, fetches, starts = transport.now + 2000, 0, 0
    while coming[0][0] < end:
        at, worker = heapq.heappop(coming)
        transport.advance(max(0, at - transport.now))
        due_ms, deliveries = transport.fetched(10, 0, f"w{worker}")
        fetches += 1
        for delivery in deliveries:
            transport.settle(delivery, f"w{worker}")
        starts += len(deliveries)
        heapq.heappush(coming, (transport.now + max(1, min(1000, due_ms if due_ms >= 0 else 1000)), worker))
    assert starts == pytest.approx(2 * per_s, abs=2)
    # Each looks once a second in any case.
    assert fetches <= 2 * per_s + 4 * workers


def test_a_worker_that_was_to_come_back_and_does_not_is_replaced_at_once(transport):
    gate = Gate("rate", "t", "", 1.0, 1)
    for worker in ("lost", "other"):
        transport.fetch(4, 4, worker)
    transport.publish([Call(f"a.1.{n}", gates=(gate,)) for n in range(3)])
    assert len(transport.fetch(4, 0, "lost")) == 1
    first_ms, _ = transport.fetched(4, 0, "lost")
    second_ms, _ = transport.fetched(4, 0, "other")
    assert first_ms < second_ms <= first_ms + 100
    transport.advance(second_ms)
    assert len(transport.fetch(4, 0, "other")) == 1


def test_a_limit_that_people_change_holds_at_once_for_those_who_wait(transport):
    transport.fetch(4, 4)
    slow = Gate("rate", "t", "", 0.01, 1)
    transport.publish([Call(f"a.1.{n}", gates=(slow,)) for n in range(3)])
    assert names(transport.fetch(4, 4)) == ["a.1.0"]
    transport.advance(1000)
    assert transport.fetch(4, 4) == []
    transport.say("t", {"rate": 1000.0})
    due_ms, _ = transport.fetched(4, 4)
    assert due_ms <= 1
    transport.advance(1)
    assert names(transport.fetch(4, 4)) == ["a.1.1"]


def test_a_settlement_beside_thousands_of_shut_gates_looks_at_none_of_them(transport):
    transport.fetch(4, 20_000)
    transport.say("t", {"paused_until_ms": NEVER_MS})
    for at in range(0, 2000, 200):
        keyed = [Gate("rate", "t", f"argument.x={n}", 10.0, 1) for n in range(at, at + 200)]
        transport.publish([Call(f"a.1.{at + n:05}", gates=(gate,)) for n, gate in enumerate(keyed)])
    for _ in range(30):
        transport.fetch(100, 0)
    open_ = Gate("concurrency", "u", "", 50.0, 0)
    transport.publish([Call(f"q.1.{n}", tenant="q", gates=(open_,)) for n in range(20)])
    running = transport.fetch(100, 0)
    assert len(running) == 20
    transport.advance(40_000)  # all gates are to be looked at
    transport.client.config_resetstat()
    for delivery in running:
        transport.settle(delivery)
    looked_at = transport.client.info("commandstats").get("cmdstat_zrange", {"calls": 0})["calls"]
    assert looked_at < 10 * len(running)


def test_a_room_with_many_is_purged_in_parts_and_leaves_nothing(transport):
    transport.fetch(1, 1)
    gates = [Gate("concurrency", "t", f"argument.x={n % 50}", 1.0, 0) for n in range(2500)]
    for at in range(0, 2500, 500):
        transport.publish([Call(f"a.1.{n:05}", tenant=f"t{n % 7}", gates=(gates[n],)) for n in range(at, at + 500)])
        transport.publish([Call(f"b.1.{n:05}", tenant=f"t{n % 7}") for n in range(at, at + 500)])
    for _ in range(10):
        transport.fetch(10, 0)
    waited = len(transport.waiting)
    assert waited > 4000
    first = transport.purge_some()
    assert 0 < first <= 1000
    assert transport.purge_room() == waited - first
    left = {key.decode() for key in transport.client.scan_iter("*:room-*")}
    assert left == {transport.keys.room_workers("io")}
