"""A rate counts starts, not messages: whatever lies in a stream, is given to another worker or is said twice."""

from __future__ import annotations

import json

import pytest

from benchmarks.room_transport import CLOCK, SETTLE, Transport
from tests.waiting.test_places import completed, goes_on_as_a_job
from toolfleet.limits import Gate
from toolfleet.scripts import wire_script
from toolfleet.streams import GROUP, RETURNED
from toolfleet.waiting.model import Call, name_of

TEN_A_SECOND = Gate("rate", "t", "", 10.0, 1)
MANY_AT_ONCE = Gate("concurrency", "t", "", 100.0, 0)
LEAVE = wire_script("leave", clock=CLOCK)
SWEEP = wire_script("sweep", clock=CLOCK)


def names(deliveries):
    return [delivery[2] for delivery in deliveries]


def in_streams(transport):
    return sum(map(transport.client.xlen, transport.streams))


def send_one_each(transport: Transport, count, each_ms, gates=(TEN_A_SECOND,)):
    for number in range(count):
        transport.publish([Call(f"a.1.{number:03}", gates=gates)])
        transport.advance(each_ms)


def starts_of_all(transport, count, consumer="new"):
    """When each of so many calls starts, at a worker that reads every 50 ms."""
    starts = []
    for _ in range(1000):
        deliveries = transport.fetch(250, 250, consumer)
        starts += [transport.now] * len(deliveries)
        for delivery in deliveries:
            transport.settle(delivery, consumer)
        if len(starts) >= count:
            return starts
        transport.advance(50)
    raise AssertionError(f"{len(starts)} of {count} started")


def most_in_a_second(starts):
    return max(sum(begun <= other < begun + 1000 for other in starts) for begun in starts)


def test_F1_what_lay_in_a_stream_while_nobody_read_it_does_not_start_all_at_once(transport):
    transport.fetch(250, 250)
    send_one_each(transport, 150, 100)
    assert in_streams(transport) > 100  # let through for a worker that is not there any more
    starts = starts_of_all(transport, 150)
    # What passed its rate in the last quarter of a second starts at once, too.
    assert most_in_a_second(starts) <= 10 + 1 + 3
    assert starts[-1] - starts[0] < 16_000  # and the rate is used


def test_what_is_put_back_keeps_its_order_and_its_places_are_free_meanwhile(transport):
    two = Gate("concurrency", "u", "", 20.0, 0)
    transport.fetch(20, 20)
    send_one_each(transport, 20, 200, (two, TEN_A_SECOND))
    transport.advance(1000)
    [first] = transport.fetch(20, 20)
    assert transport.client.hlen(transport.keys.holders("concurrency|u|")) == 1
    came = names([first])
    for _ in range(19):
        transport.advance(100)
        came += names(transport.fetch(20, 20))
    assert came == [f"a.1.{number:03}" for number in range(20)]


def test_F1_what_a_lost_worker_had_does_not_start_again_all_at_once(transport):
    transport.fetch(20, 20)
    send_one_each(transport, 10, 100)
    held = transport.fetch(20, 20)
    for _ in range(10):
        transport.advance(100)
        held += transport.fetch(20, 20)
    assert len(held) == 10
    for stream, entry, *_ in held:
        transport.client.xclaim(stream, "workers", RETURNED, 0, [entry], justid=True)
    starts = starts_of_all(transport, 10)
    assert most_in_a_second(starts) <= 10 + 1
    # Their earlier delivery counts all the same.
    assert len(set(starts)) == 10


def test_what_was_put_back_knows_how_often_a_worker_had_it_and_keeps_its_claim(transport):
    slow = Gate("rate", "t", "", 1.0, 1)
    transport.fetch(4, 4)
    transport.publish([Call("a.1.1", gates=(slow,))])
    [(stream, entry, call_id, _)] = transport.fetch(4, 4, "doomed")
    transport.client.set(transport.keys.claim(call_id), entry)
    transport.client.xclaim(stream, "workers", RETURNED, 0, [entry], justid=True)
    assert transport.fetch(4, 4, "heir") == []
    transport.advance(1000)
    [again] = transport.fetch(4, 4, "heir")
    fields = transport.fields(again)
    assert (fields[b"first"].decode(), fields[b"earlier"]) == (entry, b"1")
    assert transport.client.get(transport.keys.claim(call_id)).decode() == again[1]


def test_a_fleet_that_is_always_late_starts_calls_all_the_same(transport):
    transport.fetch(20, 20)
    started = []
    for number in range(60):
        transport.publish([Call(f"a.1.{number:03}", gates=(TEN_A_SECOND,))])
        transport.advance(100)
        if number % 10 == 9:  # once a second
            deliveries = transport.fetch(20, 20)
            started += names(deliveries)
            for delivery in deliveries:
                transport.settle(delivery)
    assert len(started) >= 20


def sent_by_its_script(transport, text, keys, args):
    return transport.client.register_script(text)(keys=keys, args=args)


def leaves(transport):
    keys = [transport.keys.lease("one"), *transport.streams]
    sent_by_its_script(transport, LEAVE, keys, [GROUP, RETURNED, "one", 1])


def is_swept(transport):
    args = [GROUP, RETURNED, "two", transport.keys.lease(""), transport.keys.sweeper("io"), 1000, "one"]
    sent_by_its_script(transport, SWEEP, transport.streams, args)


@pytest.mark.parametrize("goes", [leaves, is_swept])
def test_nothing_is_let_through_for_a_worker_that_is_gone(transport, goes):
    transport.publish([Call(f"b.1.{number}") for number in range(4)])
    running = transport.fetch(4, 50, "one")
    running += transport.fetch(1, 1, "two")
    goes(transport)
    for delivery in running:
        transport.settle(delivery, "one")
    for consumer_stream in transport.streams:
        transport.client.delete(consumer_stream)
    transport.publish([Call(f"a.1.{number}", gates=(MANY_AT_ONCE,)) for number in range(10)])
    assert in_streams(transport) == 1  # the other worker's slot


def settled_together(transport, deliveries):
    stream = deliveries[0][0]
    keys = transport.keys
    args = [keys.job(""), stream, "worker", keys.result(""), keys.replies("o"), len(deliveries)]
    for _, entry, call_id, gates in deliveries:
        args += [entry, call_id, "sealed", len(gates), *map(name_of, gates)]
    return transport.client.register_script(SETTLE)(args=args)


def test_a_settlement_that_is_sent_again_fills_no_stream_beyond_the_slots(transport):
    transport.fetch(8, 8)
    four_at_once = MANY_AT_ONCE._replace(amount=4.0)
    transport.publish([Call(f"a.1.{number:03}", gates=(four_at_once,)) for number in range(60)])
    deliveries = transport.fetch(8, 8)
    assert settled_together(transport, deliveries) == [1, 1, 1, 1]
    for _ in range(3):
        assert settled_together(transport, deliveries) == [2, 2, 2, 2]
        assert in_streams(transport) == 4


def test_what_waits_for_a_worker_and_for_no_place_is_left_to_the_worker_that_settles(transport):
    transport.fetch(4, 4)
    transport.publish([Call(f"a.1.{number:03}", gates=(MANY_AT_ONCE,)) for number in range(60)])
    deliveries = transport.fetch(4, 4)
    assert settled_together(transport, deliveries) == [1, 1, 1, 1]
    assert in_streams(transport) == 0
    assert len(transport.fetch(4, 4)) == 4


def test_ends_of_jobs_fill_no_stream_beyond_the_slots(transport):
    transport.fetch(2, 2)
    jobs = []
    for number in range(0, 10, 2):
        transport.publish([Call(f"j.1.{number + one}", gates=(MANY_AT_ONCE,)) for one in range(2)])
        for delivery in transport.fetch(2, 2):
            goes_on_as_a_job(transport, delivery)
            jobs.append(delivery[2])
    assert len(jobs) == 10
    transport.publish([Call(f"a.1.{number}", gates=(MANY_AT_ONCE,)) for number in range(20)])
    assert len(transport.fetch(2, 2)) == 2
    for call_id in jobs:
        completed(transport, call_id)
    assert in_streams(transport) == 2


@pytest.mark.parametrize("back_ms", [60_000, 3_600_000])
def test_a_clock_that_is_set_back_stops_no_rate(transport, back_ms):
    transport.fetch(50, 50)
    transport.publish([Call(f"a.1.{number:03}", gates=(TEN_A_SECOND,)) for number in range(50)])
    for _ in range(10):
        transport.advance(100)
        transport.fetch(50, 50)
    transport.advance(-back_ms)
    came = 0
    for _ in range(20):
        transport.advance(100)
        came += len(transport.fetch(50, 50))
    assert 15 <= came <= 21


def test_a_clock_that_is_set_back_makes_no_pause_of_a_tool_longer_than_it_was_to_be(transport):
    transport.fetch(4, 4)
    asked, other = (Call(f"a.1.{number}", tenant="a", run_id="r", gates=(TEN_A_SECOND,)) for number in (1, 2))
    transport.publish([asked, other])
    [first] = transport.fetch(4, 4)
    transport.postpone(first, 5000, asked)
    transport.advance(-3_600_000)
    transport.fetch(4, 4)
    transport.advance(5000)
    assert names(transport.fetch(4, 4)) == ["a.1.1"]


def test_a_tenants_ceiling_holds_for_what_its_tools_want_to_be_asked_later(transport):
    transport.client.hset(transport.keys.tenants(), "a", json.dumps({"ceiling": 2}))
    transport.fetch(10, 10)
    calls = {f"a.1.{n}": Call(f"a.1.{n}", tenant="a", run_id="r", ends_ms=transport.now + 10**6) for n in range(8)}
    transport.publish(list(calls.values()))
    while deliveries := transport.fetch(10, 10):
        for delivery in deliveries:
            transport.postpone(delivery, 5000, calls[delivery[2]])
    transport.advance(6000)
    done = []
    while deliveries := transport.fetch(10, 10):
        assert len(deliveries) <= 2
        done += names(deliveries)
        for delivery in deliveries:
            transport.settle(delivery)
    assert sorted(done) == sorted(calls)


def test_what_a_gate_without_a_burst_remembers_ends_soon_as_each_argument_may_have_one(transport):
    transport.fetch(4, 4)
    burst = Gate("rate", "u", "", 100.0, 5)
    transport.publish([Call("a.1.1", gates=(TEN_A_SECOND,)), Call("a.1.2", gates=(burst,))])
    ends_ms = [transport.client.pttl(transport.keys.gate(name)) for name in ("rate|t|", "rate|u|")]
    assert ends_ms[0] <= 61_000
    assert ends_ms[1] > 3_600_000  # of which it matters for long whether it was used up
