"""Places of concurrency limits: whoever is gone gives them up, and to look for those who are gone costs little."""

from __future__ import annotations

import json

import pytest

from benchmarks.room_transport import CLOCK, Transport
from toolfleet.limits import Gate
from toolfleet.scripts import wire_script
from toolfleet.streams import GROUP
from toolfleet.waiting.model import Call
from toolfleet.workers.jobs.schedule import SUBMIT

COMPLETE = wire_script("complete_job", clock=CLOCK)
REPORT = wire_script("report_jobs", clock=CLOCK)
BURY = wire_script("bury", clock=CLOCK)
FORWARD = wire_script("forward", clock=CLOCK)
DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
FAR_MS = 9_999_999_999_999
ONE_AT_ONCE = Gate("concurrency", "t", "", 1.0, 0)


def names(deliveries):
    return [delivery[2] for delivery in deliveries]


def is_lost(transport, delivery):
    transport.client.xack(delivery[0], "workers", delivery[1])
    transport.client.xdel(delivery[0], delivery[1])


def goes_on_as_a_job(transport: Transport, delivery, consumer="worker"):
    stream, entry, call_id, gates = delivery
    asked = {"stream": stream, "consumer": consumer, "entry": entry, "call": call_id, "tool": "t", "reply_to": "o"}
    asked |= {"gates": json.dumps([list(gate) for gate in gates]), "name": "j", "is_scheduled": True}
    asked |= {"first_wait_ms": 1000, "deadline_ms": FAR_MS, "ends_ms": FAR_MS}
    keys = transport.keys
    places = [keys.result(call_id), keys.job(call_id), keys.jobs("t"), keys.cancelled(call_id)]
    places += [keys.replies("o"), keys.job_ended(call_id)]
    submit = transport.client.register_script(SUBMIT)
    assert submit(keys=places, args=[json.dumps(asked), "record", "told"]) == 1


def completed(transport, call_id):
    keys = transport.keys
    complete = transport.client.register_script(COMPLETE)
    args = [keys.result(""), keys.jobs("t"), keys.replies("o"), call_id, "sealed", "j", FAR_MS]
    assert complete(keys=[keys.job(call_id), keys.result(call_id), keys.job_ended(call_id)], args=args) == 1


def reported(transport, call_id):
    keys = transport.keys
    prefixes = {
        "jobs": keys.job(""),
        "schedules": keys.jobs(""),
        "results": keys.result(""),
        "ended": keys.job_ended(""),
    }
    prefixes |= {"marks": keys.cancelled(""), "replies": keys.replies("")}
    transport.client.hset(keys.job(call_id), "fence", 1)
    word = {"call": call_id, "fence": 1, "wait_ms": 0, "what": "end", "tool": "t", "reply_to": "o", "name": "j"}
    word |= {"deadline_ms": FAR_MS, "ends_ms": FAR_MS}
    report = transport.client.register_script(REPORT)
    assert report(args=[json.dumps(prefixes), json.dumps(word), "sealed"]) == [1]


@pytest.mark.parametrize("ends", [completed, reported])
def test_the_end_of_a_job_frees_its_calls_place_and_lets_in_who_waits_for_it(transport, ends):
    transport.fetch(4, 4)
    first, second = (Call(f"a.1.{n}", tenant="a", gates=(ONE_AT_ONCE,)) for n in (1, 2))
    transport.publish([first, second])
    [held] = transport.fetch(4, 4)
    goes_on_as_a_job(transport, held)
    assert transport.waiting == {second.call_id}
    ends(transport, first.call_id)
    assert transport.waiting == set()
    assert names(transport.fetch(4, 4)) == [second.call_id]


def test_a_guaranteed_tenant_without_a_ceiling_gets_back_what_lost_holders_had(transport):
    transport.client.hset(transport.keys.tenants(), "g", '{"guaranteed": 2}')
    transport.fetch(4, 4)
    transport.publish([Call(f"g.1.{n}", tenant="g") for n in range(2)])
    for delivery in transport.fetch(4, 4):
        is_lost(transport, delivery)
    transport.publish([Call(f"b.1.{n:02}", tenant="b") for n in range(20)])
    transport.publish([Call(f"g.2.{n}", tenant="g") for n in range(2)])
    starts = []
    for _ in range(6):
        running = transport.fetch(4, 4)
        starts += names(running)
        for delivery in running:
            transport.settle(delivery)
    # One after the other, not in turn with the other tenant.
    assert starts.index("g.2.1") == starts.index("g.2.0") + 1


def test_what_a_gate_knows_of_its_holders_ends_a_day_after_the_longest_of_their_calls(transport):
    transport.fetch(9, 9)
    holders = transport.keys.holders("concurrency|t|argument.x=1")
    gate = Gate("concurrency", "t", "argument.x=1", 5.0, 0)
    for number, (lasts_ms, expected_ms) in enumerate([(1000, 1000), (3 * DAY_MS, 3 * DAY_MS), (1000, 3 * DAY_MS)]):
        transport.publish([Call(f"a.1.{number}", gates=(gate,), ends_ms=transport.now + lasts_ms)])
        assert transport.client.pttl(holders) == pytest.approx(DAY_MS + expected_ms, abs=60_000)


def test_lost_holders_of_a_gate_that_is_never_full_do_not_pile_up(transport):
    gate = Gate("concurrency", "t", "", 1e6, 0)
    transport.fetch(1, 20_000)
    holders = transport.keys.holders("concurrency|t|")
    transport.client.hset(holders, mapping={f"lost{n}": "nowhere 1-1" for n in range(3000)})
    for number in range(100):
        transport.advance(1000)
        transport.fetch(1, 20_000)
        transport.publish([Call(f"a.1.{number}", gates=(gate,))])
    assert transport.client.hlen(holders) <= 1000


def test_looking_for_lost_holders_is_done_a_page_at_a_time(transport):
    gate = Gate("concurrency", "t", "", 5000.0, 0)
    transport.fetch(1, 20_000)
    holders = transport.keys.holders("concurrency|t|")
    transport.client.hset(holders, mapping={f"lost{n}": "nowhere 1-1" for n in range(5000)})
    transport.publish([Call("a.1.1", gates=(gate,))])
    looked_at = 5000 - transport.client.hlen(holders)
    assert 0 < looked_at <= 200
    transport.advance(1000)
    transport.publish([Call("a.1.2", gates=(gate,))])
    assert 5000 - transport.client.hlen(holders) > looked_at


def test_a_message_that_is_sent_has_few_others_let_in_beside_it(transport):
    for at in range(0, 1000, 200):
        transport.publish([Call(f"a.1.{n:05}", tenant="a") for n in range(at, at + 200)])
    for worker in range(20):
        transport.fetch(1, 100, f"worker{worker}")
    waited = len(transport.waiting)
    transport.publish([Call("a.2.1", tenant="a")])
    assert 0 < waited - len(transport.waiting) < 100
    # And who has slots gets them filled all the same.
    assert len(transport.fetch(500, 100)) == 500


def test_a_call_whose_message_is_buried_gives_up_its_place(transport):
    transport.fetch(4, 4)
    transport.publish([Call(f"a.1.{n}", gates=(ONE_AT_ONCE,)) for n in range(2)])
    [held] = transport.fetch(4, 4)
    places = [held[0], transport.keys.dead_letters(), transport.keys.counters()]
    transport.client.register_script(BURY)(keys=places, args=["workers", 100, "io", 1000, held[1], "malformed"])
    assert names(transport.fetch(4, 4)) == ["a.1.1"]


def test_a_call_that_is_passed_on_keeps_its_place_until_it_has_ended(transport):
    transport.fetch(4, 4)
    transport.publish([Call(f"a.1.{n}", gates=(ONE_AT_ONCE,)) for n in range(2)])
    [held] = transport.fetch(4, 4)
    forward = transport.client.register_script(FORWARD)
    args = [GROUP, "worker", held[1], held[0], 500, -1, FAR_MS, transport.keys.claim("")]
    assert forward(keys=[held[0], transport.keys.scheduled("io")], args=args) == 2
    assert transport.fetch(4, 4) == []
    transport.advance(500)
    [again] = transport.fetch(4, 4)
    assert (again[2], transport.waiting) == ("a.1.0", {"a.1.1"})
    transport.advance(120_000)  # however long it runs
    assert transport.fetch(4, 4) == []
    transport.settle(again)
    assert names(transport.fetch(4, 4)) == ["a.1.1"]
