"""Second messages of a call, as an orchestrator sends them that has lost the reply to its first: none runs beside."""

from __future__ import annotations

import json
import time

import pytest

from toolfleet.limits import Gate
from toolfleet.waiting.model import Call

ONE_AT_ONCE = Gate("concurrency", "t", "", 1.0, 0)
HUNDRED_A_SECOND = Gate("rate", "t", "", 100.0, 1)


def names(deliveries):
    return [delivery[2] for delivery in deliveries]


def duplicates(transport):
    return int(transport.client.hget(transport.keys.counters(), "duplicate_messages") or 0)


def test_a_call_that_is_postponed_while_its_copy_waits_is_delivered_again(transport):
    transport.advance(int(time.time() * 1000) - transport.now)  # claims end by the server's own clock
    transport.fetch(4, 4)
    call = Call("once.1.1", gates=(HUNDRED_A_SECOND,))
    transport.publish([call], claim_s="600")
    [first] = transport.fetch(4, 4)
    transport.client.hset(transport.keys.limits(), "t", json.dumps({"paused_until_ms": transport.now + 1000}))
    transport.client.delete(transport.keys.gate(f"passed|{call.call_id}"))  # by which a copy is told for a minute
    transport.publish([call], claim_s="600")
    assert transport.waiting == {call.call_id}
    transport.postpone(first, 1000, call)
    transport.advance(2000)
    [again] = transport.fetch(4, 4)
    assert again[2] == call.call_id
    fields = transport.client.xrange(again[0], again[1], again[1])[0][1]
    assert fields[b"first"].decode() == first[1]
    assert duplicates(transport) == 1
    transport.settle(again)
    assert transport.waiting == set()
    assert sum(map(transport.client.xlen, transport.streams)) == 0


def test_a_copy_of_a_call_that_has_a_place_is_dropped(transport):
    transport.fetch(4, 4)
    call = Call("a.1.1", gates=(ONE_AT_ONCE,))
    transport.publish([call])
    transport.publish([call])
    assert names(transport.fetch(4, 4)) == [call.call_id]
    assert transport.fetch(4, 4) == []
    assert duplicates(transport) == 1


def test_a_copy_of_a_call_that_has_only_a_rate_takes_no_second_start(transport):
    transport.fetch(4, 4)
    call = Call("a.1.1", gates=(HUNDRED_A_SECOND._replace(burst=9),))
    transport.publish([call])
    before = transport.client.hget(transport.keys.gate("rate|t|"), "arrival")
    transport.publish([call])
    [first] = transport.fetch(4, 4)
    transport.publish([call])
    transport.settle(first)
    transport.publish([call])
    assert (transport.fetch(4, 4), transport.waiting) == ([], set())
    assert duplicates(transport) == 3
    assert transport.client.hget(transport.keys.gate("rate|t|"), "arrival") == before


def test_a_call_with_only_a_rate_whose_message_is_lost_may_be_sent_again(transport):
    transport.fetch(4, 4)
    call = Call("a.1.1", gates=(HUNDRED_A_SECOND,))
    transport.publish([call])
    [first] = transport.fetch(4, 4)
    transport.client.xack(first[0], "workers", first[1])
    transport.client.xdel(first[0], first[1])
    transport.advance(1000)
    transport.publish([call])
    assert names(transport.fetch(4, 4)) == [call.call_id]


def test_a_copy_that_waits_while_its_call_starts_is_dropped_and_takes_no_start(transport):
    transport.fetch(4, 4)
    rate = Gate("rate", "t", "", 1.0, 1)
    call = Call("a.1.1", gates=(ONE_AT_ONCE, rate))
    transport.client.hset(transport.keys.limits(), "t", json.dumps({"paused_until_ms": transport.now + 1000}))
    transport.publish([call])
    transport.advance(2000)
    [first] = transport.fetch(4, 4)
    transport.client.hset(transport.keys.limits(), "t", json.dumps({"paused_until_ms": transport.now + 1000}))
    before = transport.client.hget(transport.keys.gate("rate|t|"), "arrival")
    transport.publish([call, Call("a.1.2", gates=(ONE_AT_ONCE, rate))])
    transport.advance(2000)
    assert transport.fetch(4, 4) == []
    assert transport.waiting == {"a.1.2"}
    assert transport.client.hget(transport.keys.gate("rate|t|"), "arrival") == before
    transport.settle(first)
    assert names(transport.fetch(4, 4)) == ["a.1.2"]


def test_a_message_that_has_no_place_of_its_own_takes_none_from_its_call_as_it_ends(transport):
    transport.fetch(4, 4)
    call = Call("a.1.1", gates=(ONE_AT_ONCE,))
    transport.publish([call])
    [first] = transport.fetch(4, 4)
    stream, entry, _, gates = first
    fields = transport.client.xrange(stream, entry, entry)[0][1]
    transport.client.xadd(stream, fields)  # as by whoever writes to the stream
    [copy] = transport.fetch(4, 4)
    transport.publish([Call("a.1.2", gates=(ONE_AT_ONCE,))])
    transport.settle(copy)
    assert transport.fetch(4, 4) == []
    transport.settle(first)
    assert names(transport.fetch(4, 4)) == ["a.1.2"]
    assert gates == [ONE_AT_ONCE]


def test_a_call_whose_message_is_lost_may_be_sent_again(transport):
    transport.fetch(4, 4)
    call = Call("a.1.1", gates=(ONE_AT_ONCE,))
    transport.publish([call])
    [first] = transport.fetch(4, 4)
    transport.client.xack(first[0], "workers", first[1])
    transport.client.xdel(first[0], first[1])
    transport.publish([call])
    assert names(transport.fetch(4, 4)) == [call.call_id]


def delivered_one_by_one(transport, rounds=40):
    came = []
    for _ in range(rounds):
        for delivery in transport.fetch(1, 4):
            came.append(delivery[2])
            transport.settle(delivery)
        transport.advance(20)
    return came


@pytest.mark.parametrize("gates", [(), (HUNDRED_A_SECOND,), (ONE_AT_ONCE,)])
def test_a_batch_that_is_sent_again_waits_once_where_each_call_ends_later_than_the_one_before(transport, gates):
    transport.fetch(4, 4)
    transport.publish([Call(f"before.1.{n}", run_id="before") for n in range(8)])
    batch = [Call(f"a.1.{n}", run_id="a", gates=gates, ends_ms=transport.now + 60_000 + n) for n in range(4)]
    transport.publish(batch)
    transport.publish(batch)
    assert duplicates(transport) == 4
    came = [call_id for call_id in delivered_one_by_one(transport) if call_id.startswith("a")]
    assert came == [call.call_id for call in batch]
    assert transport.waiting == set()


def test_a_second_message_far_behind_the_first_one_takes_no_place_of_its_own(transport):
    transport.fetch(4, 4)
    transport.publish([Call(f"before.1.{n}", run_id="before") for n in range(8)])
    many = Gate("concurrency", "t", "", 1000.0, 0)
    calls = [Call(f"a.1.{n:02}", run_id="a", gates=(many,), ends_ms=transport.now + 60_000) for n in range(70)]
    transport.publish(calls)
    transport.publish(calls[:2])
    came = [delivery[2] for _ in range(3) for delivery in transport.fetch(200, 200)]
    assert sorted(call_id for call_id in came if call_id.startswith("a")) == [call.call_id for call in calls]
    assert duplicates(transport) == 2
