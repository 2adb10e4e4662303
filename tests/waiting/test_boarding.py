"""Calls that ask the same and have limits: whoever runs has a place, and gets it in its turn."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks.room_transport import CLOCK
from toolfleet.limits import Gate
from toolfleet.scripts import wire_script
from toolfleet.streams import GROUP
from toolfleet.waiting.model import Call

BOARD = wire_script("board", clock=CLOCK)
LAND = wire_script("land", clock=CLOCK)
TWO_AT_ONCE = Gate("concurrency", "t", "", 2.0, 0)
QUESTION = "q"


@pytest.fixture
def transport(transport):
    transport.advance(int(time.time() * 1000) - transport.now)  # what a question leaves ends by the server's own clock
    transport.fetch(50, 50)
    return transport


def board(transport, delivery, *, is_alone=False):
    stream, entry, call_id, gates = delivery
    keys = transport.keys
    places = [keys.cached(QUESTION), keys.finder(QUESTION), keys.waiting_for_answer(QUESTION), stream]
    text = json.dumps([list(gate) for gate in gates], separators=(",", ":")) if gates else ""
    args = [GROUP, "worker", entry, call_id, stream, 5000, transport.now + 600_000, text, "a", "r", int(is_alone)]
    script = transport.client.register_script(BOARD)
    return script(keys=[*places, keys.scheduled(transport.queue)], args=args)[0].decode()


def land(transport, call_id, *, is_kept, goes_on=False):
    keys = transport.keys
    places = [keys.finder(QUESTION), keys.waiting_for_answer(QUESTION), keys.scheduled(transport.queue)]
    return transport.client.register_script(LAND)(keys=places, args=[call_id, int(is_kept), int(goes_on)])


def test_who_runs_because_what_is_kept_is_no_answer_has_a_place(transport):
    gate_calls = [Call(f"a.1.{n:02}", gates=(TWO_AT_ONCE,)) for n in range(8)]
    transport.publish(gate_calls)
    transport.client.set(transport.keys.cached(QUESTION), "nobody's answer")
    running, done = [], set()
    for _ in range(60):
        for delivery in transport.fetch(50, 0):
            assert board(transport, delivery) == "kept"
            if board(transport, delivery, is_alone=True) == "finds":
                running.append(delivery)
        assert len(running) <= 2
        if running:
            done.add(running[0][2])
            transport.settle(running.pop(0))
        transport.advance(100)
    assert done == {call.call_id for call in gate_calls}


def test_who_waited_for_an_answer_that_never_came_has_its_turn_beside_a_backlog(transport):
    transport.publish([Call(f"a.1.{n}", tenant="a", gates=(TWO_AT_ONCE,)) for n in (1, 2)])
    finder, waiter = transport.fetch(10, 0)
    assert board(transport, finder) == "finds"
    assert board(transport, waiter) == "waits"
    transport.publish([Call(f"z.1.{n:03}", tenant="z", gates=(TWO_AT_ONCE,)) for n in range(400)])
    running = transport.fetch(10, 0)
    transport.settle(finder)
    land(transport, finder[2], is_kept=False)
    boarded = []
    for _ in range(40):
        transport.advance(100)
        for delivery in transport.fetch(10, 0):
            if delivery[2] == waiter[2]:
                boarded.append(board(transport, delivery))
            else:
                running.append(delivery)
        if "finds" in boarded:
            break
        transport.settle(running.pop(0))
    assert boarded == ["waits", "finds"]  # it is not asked again and again


def test_who_waits_for_a_place_again_takes_no_second_start_of_a_rate(transport):
    rate = Gate("rate", "t", "", 1.0, 4)
    transport.publish([Call("a.1.1", gates=(TWO_AT_ONCE, rate))])
    [first] = transport.fetch(4, 0)
    holders = transport.keys.holders("concurrency|t|")
    transport.client.hdel(holders, first[2])
    transport.say("t", {"concurrency": 1.0})
    transport.client.hset(holders, "other", f"until {transport.now + 5000}")
    assert board(transport, first) == "waits"
    before = transport.client.hget(transport.keys.gate("rate|t|"), "arrival")
    transport.advance(6000)
    [again] = transport.fetch(4, 0)
    assert again[2] == first[2]
    assert board(transport, again) == "finds"
    assert transport.client.hget(transport.keys.gate("rate|t|"), "arrival") == before


def a_text_at_the_finder(transport):
    transport.client.set(transport.keys.finder(QUESTION), "not ours")


def a_list_that_is_kept(transport):
    transport.client.rpush(transport.keys.cached(QUESTION), "not ours")


def a_finder_without_a_message(transport):
    transport.client.hset(transport.keys.finder(QUESTION), "call", "b.1.1")


def a_finder_whose_message_is_none(transport):
    transport.client.set("text", "not ours")
    found = {"call": "b.1.1", "stream": "text", "entry": "not an id"}
    transport.client.hset(transport.keys.finder(QUESTION), mapping=found)


def a_text_at_those_who_wait(transport):
    transport.client.set(transport.keys.waiting_for_answer(QUESTION), "not ours")


@pytest.mark.parametrize(
    "spoil",
    [
        *(a_text_at_the_finder, a_list_that_is_kept, a_finder_without_a_message, a_finder_whose_message_is_none),
        a_text_at_those_who_wait,
    ],
)
def test_whatever_stands_where_an_answer_is_looked_for_one_call_finds_it_and_the_others_wait(transport, spoil):
    transport.publish([Call(f"a.1.{number}") for number in range(3)])
    deliveries = transport.fetch(10, 0)
    spoil(transport)
    assert [board(transport, delivery) for delivery in deliveries] == ["finds", "waits", "waits"]
    transport.settle(deliveries[0])
    a_text_at_the_finder(transport)
    assert land(transport, deliveries[0][2], is_kept=False) == 0
    transport.advance(1)
    assert len(transport.fetch(10, 0)) == 1  # who tries next


def test_many_who_wait_are_woken_in_parts(transport):
    for at in range(0, 500, 100):
        transport.publish([Call(f"a.1.{n + at:03}") for n in range(100)])
    deliveries = [delivery for _ in range(40) for delivery in transport.fetch(50, 50)]
    assert len(deliveries) == 500
    finder, *others = deliveries
    assert board(transport, finder) == "finds"
    assert {board(transport, delivery) for delivery in others} == {"waits"}
    transport.settle(finder)
    assert land(transport, finder[2], is_kept=True) == 1
    parts = 1
    while land(transport, finder[2], is_kept=True, goes_on=True):
        parts += 1
    assert parts == 2
    transport.client.set(transport.keys.cached(QUESTION), "answer")
    transport.advance(1)
    woken = [delivery for _ in range(40) for delivery in transport.fetch(50, 0)]
    assert len(woken) == 499
