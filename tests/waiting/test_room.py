"""The waiting room on a real server, by a clock that is set: shares, limits, and what heals by itself."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.fairness import SLOTS, Fleet, backlog
from benchmarks.room_transport import Transport
from toolfleet.limits import Gate
from toolfleet.streams import Priority
from toolfleet.waiting.model import LEVELS as MODEL_LEVELS, Call

HUNDRED_AT_ONCE = Gate("concurrency", "t", "", 100.0, 0)
ONE_AT_ONCE = Gate("concurrency", "t", "", 1.0, 0)
TEN_A_SECOND = Gate("rate", "t", "tenant=a", 10.0, 1)


def calls(count, *, gates=(), tenant="a", run="r", **named):
    return [Call(f"{tenant}{run}.1.{number:05}", 3, tenant, run, gates, **named) for number in range(count)]


def test_the_levels_of_the_room_are_those_of_the_queues(transport):
    assert tuple(Priority) == MODEL_LEVELS
    for level in Priority:
        transport.publish([Call(f"{level}.{n}", level) for n in range(10)])
    assert len(transport.fetch(30, 30)) == 30


def test_F1_no_sliding_second_has_more_starts_than_the_rate_and_its_burst(transport):
    transport.fetch(4, 4)
    transport.publish(calls(200, gates=(TEN_A_SECOND,)))
    starts = []
    while len(starts) < 200:
        due_ms, deliveries = transport.fetched(4, 4)
        starts += [transport.now] * len(deliveries)
        for delivery in deliveries:
            transport.settle(delivery)
        assert due_ms <= 1000
        transport.advance(max(1, due_ms))
    most = max(sum(begun <= other < begun + 1000 for other in starts) for begun in starts)
    assert most <= 10 + 1
    # And it is used: the last of them begins when it may.
    assert starts[-1] - starts[0] == pytest.approx(19_900, abs=50)


def test_F2_a_lone_call_of_another_tenant_does_not_wait_for_ten_thousand(transport):
    fleet = Fleet(transport.client, is_fair=True)
    backlog(fleet, "many", 10_000)
    fleet.warm_up()
    fleet.send([("one", "r")])
    [start] = [start for start in fleet.starts(2 * SLOTS) if start.call.tenant == "one"]
    assert start.waited_ms <= 2000


def test_F3_tenants_get_starts_by_their_weights_and_a_changed_weight_holds_for_the_backlog(transport):
    fleet = Fleet(transport.client, is_fair=True)
    transport.client.hset(transport.keys.tenants(), mapping={"a": '{"weight": 1}', "b": '{"weight": 3}'})
    for tenant in "ab":
        backlog(fleet, tenant, 2000)
    fleet.warm_up()
    before = Counter(start.call.tenant for start in fleet.starts(1000)[:1000])
    assert 245 <= before["a"] <= 255
    transport.client.hset(transport.keys.tenants(), mapping={"a": '{"weight": 3}', "b": '{"weight": 1}'})
    after = Counter(start.call.tenant for start in fleet.starts(1000)[:1000])
    assert 745 <= after["a"] <= 755


def test_F4_small_tenants_do_not_wait_beside_a_large_one(transport):
    fleet = Fleet(transport.client, is_fair=True)
    backlog(fleet, "many", 10_000)
    fleet.warm_up()
    waits = []
    for number in range(200):
        fleet.send([(f"small{number}", "r")])
        waits += [start.waited_ms for start in fleet.starts(5) if start.call.tenant != "many"]
    assert len(waits) >= 199
    assert sorted(waits)[-2] < 3000


def test_F5_a_lost_holders_place_is_free_within_a_second_and_never_before(transport):
    transport.fetch(4, 4)
    first, second = calls(2, gates=(ONE_AT_ONCE,))
    transport.publish([first, second])
    [held] = transport.fetch(4, 4, "doomed")
    # Its worker is lost, and its message goes to another: the same call has the same place.
    transport.client.xclaim(held[0], "workers", "@returned", 0, [held[1]], justid=True)
    assert [delivery[2] for delivery in transport.fetch(4, 4, "heir")] == [first.call_id]
    # And where the message itself is gone, its place is taken back.
    transport.client.xdel(held[0], held[1])
    transport.client.xack(held[0], "workers", held[1])
    transport.advance(1000)
    assert [delivery[2] for delivery in transport.fetch(4, 4, "heir")] == [second.call_id]


def test_F5_a_job_elsewhere_keeps_its_calls_place(transport):
    transport.fetch(4, 4)
    first, second = calls(2, gates=(ONE_AT_ONCE,))
    transport.publish([first, second])
    [held] = transport.fetch(4, 4)
    transport.client.hset(transport.keys.job(first.call_id), "record", "sealed")
    transport.client.xack(held[0], "workers", held[1])
    transport.client.xdel(held[0], held[1])
    transport.advance(5000)
    assert transport.fetch(4, 4) == []
    transport.client.delete(transport.keys.job(first.call_id))
    transport.advance(1000)
    assert [delivery[2] for delivery in transport.fetch(4, 4)] == [second.call_id]


def test_F6_what_waits_for_a_rate_holds_no_place(transport):
    transport.fetch(4, 4)
    slow = Gate("rate", "t", "tenant=a", 0.1, 1)
    transport.publish(calls(2, gates=(ONE_AT_ONCE, slow)))
    [first] = transport.fetch(4, 4)
    transport.publish(calls(1, gates=(ONE_AT_ONCE,), tenant="b"))
    assert transport.fetch(4, 4) == []
    transport.settle(first)
    assert [delivery[2] for delivery in transport.fetch(4, 4)] == ["br.1.00000"]


def test_F6_a_rate_goes_on_when_the_server_has_lost_what_it_knew_of_it(transport):
    transport.fetch(4, 4)
    transport.publish(calls(3, gates=(ONE_AT_ONCE, TEN_A_SECOND._replace(burst=5))))
    [first] = transport.fetch(4, 4)
    for key in transport.client.keys("*:gate*"):
        transport.client.delete(key)
    transport.settle(first)
    transport.advance(1000)
    [second] = transport.fetch(4, 4)  # one, not a burst of five
    transport.settle(second)
    transport.advance(100)
    assert len(transport.fetch(4, 4)) == 1


def test_of_runs_with_one_call_each_the_one_goes_first_that_came_first(transport):
    transport.fetch(1, 1)
    ids = ["d", "b", "c", "a", "f", "e"]
    names = [f"{each}.1.0" for each in (*"uvwx", *ids)]  # as many as a stream takes go straight
    for name in names:
        transport.publish([Call(name, 3, "", name)])
    began = []
    while len(began) < len(names):
        for delivery in transport.fetch(1, 1):
            began.append(delivery[2])
            transport.settle(delivery)
    assert began == names


def test_a_call_with_two_places_gives_up_both_before_anybody_looks_who_has_one(transport):
    transport.client.hset(transport.keys.tenants(), "z", '{"guaranteed": 1}')
    transport.fetch(1, 1)
    first, second = calls(2, gates=(ONE_AT_ONCE,), tenant="z")
    transport.publish([first])
    [running] = transport.fetch(1, 1)
    transport.publish([second])
    assert transport.fetch(1, 1) == []
    transport.publish(calls(1, tenant="b"))
    transport.publish(calls(1, tenant="z", run="other"))
    transport.advance(1000)  # lost holders are looked for again
    transport.settle(running)
    [(_, _, call_id, _)] = transport.fetch(1, 1)
    assert call_id.startswith("z")


def test_F7_a_guaranteed_tenant_uses_what_is_free_and_keeps_what_it_is_promised(transport):
    fleet = Fleet(transport.client, is_fair=True)
    transport.client.hset(transport.keys.tenants(), "a", '{"guaranteed": 2, "ceiling": 8}')
    backlog(fleet, "a", 1000)
    assert len(fleet.begin()) == 8
    for number in range(9):
        backlog(fleet, f"other{number}", 200)
    assert len(fleet.begin()) == SLOTS - 8  # no slot idles
    fleet.starts(100)
    busy = Counter(start.call.tenant for start in fleet.starts(1000))
    assert busy["a"] / busy.total() * SLOTS == pytest.approx(2, abs=0.2)


def test_F8_expired_and_cancelled_calls_take_no_start_of_a_rate(transport):
    transport.fetch(4, 4)
    once_a_minute = Gate("rate", "t", "", 1 / 60, 1)
    transport.publish([Call("taken", gates=(once_a_minute,))])
    transport.publish([Call("expired", gates=(once_a_minute,), run_id="1", ends_ms=transport.now + 1000)])
    transport.publish([Call("gone", gates=(once_a_minute,), run_id="1"), Call("wanted", gates=(once_a_minute,))])
    transport.client.set(transport.keys.cancelled("gone"), "1")
    assert [delivery[2] for delivery in transport.fetch(4, 4)] == ["taken"]
    transport.advance(60_000)
    came = transport.fetch(4, 4)
    assert sorted(delivery[2] for delivery in came) == ["expired", "gone", "wanted"]
    assert {delivery[2] for delivery in came if delivery[3]} == {"wanted"}


def over(transport, deliveries):
    return {delivery[2]: transport.fields(delivery).get(b"over") for delivery in deliveries}


def test_F8_what_nobody_wants_any_more_leaves_with_the_word_that_its_worker_ends_it_by(transport):
    transport.fetch(4, 4)
    [taken, *others] = calls(4, gates=(ONE_AT_ONCE,))
    transport.publish([taken, others[0], others[1]._replace(ends_ms=transport.now + 1000), others[2]])
    [held] = transport.fetch(4, 4)
    transport.client.set(transport.keys.cancelled(others[0].call_id), "1")
    transport.advance(1000)
    transport.settle(held)  # by which no worker looks at deadlines
    found = over(transport, transport.fetch(4, 4))
    assert found == {others[0].call_id: b"cancelled", others[1].call_id: b"expired", others[2].call_id: None}


def test_F8_what_waits_without_limits_and_was_cancelled_is_delivered_as_such(transport):
    transport.fetch(1, 1)
    transport.publish(calls(30))
    gone = sorted(transport.waiting)[5]
    transport.client.set(transport.keys.cancelled(gone), "1")
    assert len(transport.fetch(30, 30)) == 30
    assert transport.delivered_cancelled == {gone}


def test_F9_a_postponed_call_pauses_its_limit_for_everybody_and_goes_first_when_that_is_over(transport):
    transport.fetch(4, 4)
    tight = Gate("concurrency", "t", "tenant=a", 2.0, 0)
    transport.publish([*calls(3, gates=(tight,)), *calls(1, gates=(ONE_AT_ONCE,), tenant="b")])
    first, second, other = transport.fetch(4, 4)
    transport.postpone(first, 12_000)
    transport.settle(second)
    assert transport.fetch(4, 4) == []
    transport.advance(11_999)
    assert transport.fetch(4, 4) == []
    transport.settle(other)
    transport.publish(calls(1, gates=(ONE_AT_ONCE,), tenant="c"))
    assert [delivery[2] for delivery in transport.fetch(4, 4)] == ["cr.1.00000"]  # others go on
    transport.advance(1000)
    again, third = transport.fetch(4, 4)
    assert again[2] == first[2]
    fields = dict(transport.client.xrange(again[0], again[1], again[1])[0][1])
    assert (fields[b"first"].decode(), fields[b"earlier"]) == (first[1], b"0")  # that delivery was no attempt
    assert third[2] == "ar.1.00002"


def test_F9_a_postponed_call_without_limits_waits_alone(transport):
    transport.publish(calls(2))
    first, _ = transport.fetch(4, 4)
    transport.postpone(first, 500)
    assert transport.fetch(4, 4) == []
    transport.advance(500)
    assert [delivery[2] for delivery in transport.fetch(4, 4)] == [first[2]]


def test_F13_runs_of_one_tenant_interleave(transport):
    fleet = Fleet(transport.client, is_fair=True)
    backlog(fleet, "t", 500, run="large")
    fleet.warm_up()
    fleet.send([("t", f"small{number}") for number in range(10)])
    small = [start for start in fleet.starts(3 * SLOTS) if start.call.run_id != "large"]
    assert len(small) == 10


def test_F15_people_go_before_batches_and_batches_still_move(transport):
    fleet = Fleet(transport.client, is_fair=True)
    fleet.send([("t", f"line{number}") for number in range(2000)], level=6)
    fleet.warm_up()
    fleet.send([("t", f"person{number}") for number in range(1000)], level=0)
    starts = fleet.starts(400)
    levels = Counter(start.call.level for start in starts[SLOTS:])
    assert levels[0] > 0.9 * levels.total()
    assert levels[6] >= 0.04 * levels.total()


def test_a_second_message_of_a_call_that_waits_is_dropped(transport):
    transport.fetch(1, 1)
    transport.publish(calls(10))
    waiting = [call for call in calls(10) if call.call_id in transport.waiting]
    assert len(waiting) == 6
    transport.publish(waiting)
    assert len(transport.fetch(30, 30)) == 10
    assert transport.client.hget(transport.keys.counters(), "duplicate_messages") == b"6"


def test_a_purged_room_is_empty_and_leaves_nothing(transport):
    transport.fetch(1, 1)
    transport.publish([*calls(20), *calls(20, gates=(ONE_AT_ONCE,), tenant="b")])
    waited = len(transport.waiting)
    assert waited > 30
    assert transport.purge_room() == waited
    left = {key.decode() for key in transport.client.scan_iter("*:room-*")}
    assert left == {transport.keys.room_workers("io")}


def test_what_nobody_can_read_in_the_room_holds_up_nobody(transport: Transport):
    transport.fetch(4, 4)
    sent = calls(10, gates=(HUNDRED_AT_ONCE,))
    transport.publish(sent, lanes={call.call_id for call in sent})  # without a reader: it waits, and not plainly
    transport.client.hset(transport.keys.room_calls("io"), min(transport.waiting), b"\xc1 not a message")
    came = [delivery[2] for _ in range(10) for delivery in transport.fetch(1, 4)]
    assert len(came) == 10
    assert came.count("unreadable") == 1
    assert transport.waiting == set()


@pytest.mark.parametrize("gates", [(), (HUNDRED_AT_ONCE,)], ids=["without limits", "with limits"])
def test_plain_calls_that_were_cut_short_hold_up_nobody(transport: Transport, gates):
    transport.fetch(4, 4)
    transport.publish([*calls(10, gates=gates), *calls(10, tenant="b", gates=gates)])
    [line] = transport.client.scan_iter(transport.keys.room_plain_line("io", "3:1:a*"))
    transport.client.rpop(line)
    came = [delivery[2] for _ in range(20) for delivery in transport.fetch(1, 4)]
    assert len(came) == 20
    assert came.count("unreadable") == 1
    assert transport.waiting == set()


def test_a_room_that_was_written_over_keeps_no_call_from_being_settled(transport):
    transport.fetch(4, 4)
    first, second = calls(2, gates=(ONE_AT_ONCE,))
    transport.publish([first, second])
    [held] = transport.fetch(4, 4)
    openings = transport.keys.room_openings("io")
    transport.client.set(openings, "not ours")
    transport.settle(held)
    assert transport.client.exists(transport.keys.result(first.call_id))
    assert int(transport.client.hget(transport.keys.counters(), "waiting_room_failures")) >= 1


def test_who_takes_thousands_at_once_reads_them_in_parts(transport):
    transport.fetch(1, 6000)
    transport.publish(calls(5000), claim_s="600")
    came = []
    while len(came) < 5000:
        again_ms, deliveries = transport.fetched(6000 - len(came), 6000)
        came += [delivery[2] for delivery in deliveries]
        assert again_ms == (-2 if len(came) < 5000 else -1)
    assert sorted(came) == [call.call_id for call in calls(5000)]
