"""What limits cost the server where nobody reaches them, counted in commands: of a batch they are asked once."""

from __future__ import annotations

import time

from toolfleet.limits import Gate
from toolfleet.waiting.model import Call, name_of

GATES = (Gate("concurrency", "t", "", 1e6, 0), Gate("rate", "t", "", 1e6, 1_000_000))
MANY = 200
LATE_MS = 9_999_999_999_999


def counted(client):
    stats = client.info("commandstats").items()
    return {name.removeprefix("cmdstat_"): said["calls"] for name, said in stats if name != "cmdstat_info"}


def beside(client, work, *own):
    """How many commands some work takes beside those that each of its calls needs anyway, and the clock of the test."""
    before = counted(client)
    work()
    after = counted(client)
    return sum(calls - before.get(name, 0) for name, calls in after.items() if name not in {"get", *own})


def calls(name, count=MANY):
    return [Call(f"{name}.1.{number:03}", tenant="a", run_id="r", gates=GATES) for number in range(count)]


def warm_up(transport):
    """A rate that nothing is known of begins with one start."""
    transport.advance(int(time.time() * 1000) - transport.now)
    transport.fetch(1, MANY)
    transport.publish(calls("first", 1))
    [delivery] = transport.fetch(1, MANY)
    transport.settle(delivery)
    transport.advance(2000)


def test_a_batch_whose_gates_are_open_asks_them_once(transport):
    warm_up(transport)
    assert beside(transport.client, lambda: transport.publish(calls("a")), "xadd") <= 20
    assert transport.waiting == set()
    names = {delivery[2] for delivery in transport.fetch(MANY, MANY)}
    assert names == {call.call_id for call in calls("a")}
    held = transport.client.hkeys(transport.keys.holders("concurrency|t|"))
    assert {name.decode() for name in held} == names


def test_a_lone_call_asks_for_each_thing_once_and_what_is_said_of_its_limits_holds(transport):
    warm_up(transport)
    [one], [other] = calls("a", 1), calls("b", 1)
    assert beside(transport.client, lambda: transport.publish([one]), "hlen", "xlen", "xadd") <= 10
    # What is said of a tool is for the long way, which asks again.
    transport.say("t", {"concurrency": 1})
    transport.publish([other])
    assert transport.waiting == {other.call_id}


def test_a_lone_call_starts_where_a_rate_is_forgotten_and_only_the_first(transport):
    transport.fetch(4, 4)
    rate = (Gate("rate", "t", "", 1, 5),)
    for number in range(3):
        transport.publish([Call(f"a.1.{number}", run_id="r", gates=rate)])
    assert transport.waiting == {"a.1.1", "a.1.2"}
    transport.client.hset(transport.keys.gate("rate|t|"), "arrival", "nan")
    transport.purge_room()
    transport.publish([Call("a.1.3", run_id="r", gates=rate)])
    assert transport.waiting == set()


def test_a_lone_call_is_not_sent_twice_and_not_while_its_limit_is_paused(transport):
    warm_up(transport)
    for gates in (GATES, GATES[1:]):
        one = Call(f"{len(gates)}.1.0", run_id="r", gates=gates)
        transport.publish([one])
        transport.publish([one])
    assert len(transport.fetch(4, MANY)) == 2
    for number, gate in enumerate(GATES):
        transport.client.hset(
            transport.keys.gate(name_of(gate)), mapping={"paused": transport.now + 500, "pause_ms": 1000}
        )
        transport.publish([Call(f"p.1.{number}", run_id="r", gates=(gate,))])
        assert transport.waiting == {f"p.1.{number}"}
        transport.purge_room()


def test_what_waits_alone_passes_open_gates_together(transport):
    warm_up(transport)
    transport.publish(calls("a"))
    transport.publish(calls("b"))
    assert len(transport.waiting) == MANY
    for delivery in transport.fetch(MANY, MANY):
        transport.client.xack(delivery[0], "workers", delivery[1])
        transport.client.xdel(delivery[0], delivery[1])
    # For each call one XADD, and what its delivery asks: whether it was cancelled.
    assert beside(transport.client, lambda: transport.fetch(MANY, MANY), "xadd", "exists") <= 60
    assert transport.waiting == set()


def test_a_batch_that_says_a_call_twice_sends_it_once(transport):
    warm_up(transport)
    [one] = calls("a", 1)
    transport.publish([one, one])
    assert [delivery[2] for delivery in transport.fetch(4, MANY)] == [one.call_id]
    assert transport.waiting == set()


def plain(runs, each):
    """Calls without limits, as the conversations of two tenants send them at once."""
    named = [(f"r{run}", tenant) for run in range(runs) for tenant in ("", "a")]
    return [
        Call(f"{run}{tenant}.1.{number:03}", tenant=tenant, run_id=f"{run}{tenant}", ends_ms=LATE_MS)
        for number in range(each)
        for run, tenant in named
    ]


def order_of(transport, *batches):
    """In which order calls start that have waited behind others."""
    transport.client.flushall()
    transport.advance(0)
    transport.fetch(4, 4)
    transport.publish([Call(f"before.1.{number}", run_id="before") for number in range(10)])
    for batch in batches:
        transport.publish(batch)
    started = []
    while deliveries := transport.fetch(4, 4):
        started += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
    assert transport.waiting == set()
    return started


def test_calls_without_limits_that_begin_to_wait_together_go_in_the_order_of_one_by_one(transport):
    together = plain(runs=5, each=6)
    one_by_one = order_of(transport, *([call] for call in together))
    assert order_of(transport, together) == one_by_one
    assert len(one_by_one) == 10 + len(together)


def test_calls_without_limits_that_wait_cost_few_commands(transport):
    transport.fetch(4, 4)
    transport.publish(plain(runs=1, each=10))
    assert beside(transport.client, lambda: transport.publish(calls_without_limits(MANY))) <= 40
    assert len(transport.waiting) > MANY


def calls_without_limits(count):
    return [Call(f"many.1.{number:03}", tenant="a", run_id="many", ends_ms=LATE_MS) for number in range(count)]


def test_a_batch_that_says_a_waiting_call_twice_has_it_wait_once(transport):
    transport.fetch(4, 4)
    transport.publish(calls_without_limits(10))
    transport.publish(calls_without_limits(12)[9:] * 2)
    came = [delivery[2] for _ in range(6) for delivery in transport.fetch(4, 4)]
    assert sorted(came) == [call.call_id for call in calls_without_limits(12)]
    assert transport.client.hget(transport.keys.counters(), "duplicate_messages") == b"4"


def test_a_batch_begins_to_wait_whole_in_a_room_that_was_written_over(transport):
    transport.fetch(4, 4)
    transport.publish(calls_without_limits(10))
    transport.client.delete(transport.keys.room_ends("io"))
    transport.client.set(transport.keys.room_ends("io"), "not ours")
    transport.publish(plain(runs=2, each=3))
    came = []
    for _ in range(12):
        deliveries = transport.fetch(4, 4)
        came += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
    assert sorted(came) == sorted(call.call_id for call in (*calls_without_limits(10), *plain(runs=2, each=3)))


def test_calls_with_limits_that_wait_cost_few_commands_and_each_waits_once(transport):
    warm_up(transport)
    transport.publish(calls("a"))
    assert beside(transport.client, lambda: transport.publish(calls("b"))) <= 40
    transport.publish(calls("b") + calls("c", 1) * 2)
    assert transport.waiting == {call.call_id for call in (*calls("b"), *calls("c", 1))}
    assert transport.client.hget(transport.keys.counters(), "duplicate_messages") == b"201"


def test_what_has_no_limits_is_read_behind_what_has_and_waits_in_the_same_place(transport):
    bound = GATES[:1]
    transport.publish(
        [
            *(Call(f"a.1.{number}", 0, "a", "x") for number in range(2)),
            Call("a.1.2", 0, "a", "x", bound),
            Call("b.1.0", 3, "b", "x"),
            Call("b.1.1", 3, "b", "x", bound),
        ]
    )
    assert len(transport.fetch(3, 3)) == 3
    assert {call_id for _, _, call_id, _ in transport.fetch(2, 3)} == {"b.1.0", "b.1.1"}
    assert not transport.client.hexists(transport.keys.counters(), "waiting_room_failures")
