"""What limits cost the server where nobody reaches them, counted in commands: of a batch they are asked once."""

from __future__ import annotations

import time

from toolfleet.limits import Gate
from toolfleet.waiting.model import Call

GATES = (Gate("concurrency", "t", "", 1e6, 0), Gate("rate", "t", "", 1e6, 1_000_000))
MANY = 200


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
