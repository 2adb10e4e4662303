"""What anybody writes into the keys of a room harms no other call: it is buried or removed, and counted."""

from __future__ import annotations

import json

import pytest

from benchmarks.room_transport import Transport
from toolfleet.limits import Gate
from toolfleet.waiting.model import Call

HUNDRED_AT_ONCE = Gate("concurrency", "t", "", 100.0, 0)
ONE_AT_ONCE = Gate("concurrency", "t", "", 1.0, 0)
PACK = "return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(cjson.decode(ARGV[2])))"


def write_call(transport: Transport, call_id, parts):
    transport.client.eval(PACK, 1, transport.keys.room_calls("io"), call_id, json.dumps(parts))


def written(fields, flow="3:1:a"):
    return lambda transport, call_id: write_call(transport, call_id, [flow, "r", 0, "", "", fields])


def a_flow_of_nobody(transport, _):
    keys = transport.keys
    transport.client.zadd(keys.room_turns("io", 3), {"x": -5})
    transport.client.zadd(keys.room_flows("io", 3, "x"), {"garbage": 0})
    transport.client.zadd(keys.room_line("io", "garbage"), {"zz": 1})


def a_text_at(key):
    def spoil(transport, _):
        transport.client.set(key(transport.keys), "not ours")

    return spoil


SPOILED = {
    "an odd number of fields": written(["b"]),
    "no fields": written([]),
    "nested fields": written(["b", ["x"]]),
    "too many fields": written(["b", "x"] * 5000),
    "a flow that is none": written(["b", "x"], "nothing"),
    "a size that is none": written(["b", "x"], "3:999999:a"),
    "no list": lambda transport, call_id: write_call(transport, call_id, {"a": 1}),
    "a turn of nobody": a_flow_of_nobody,
    "shares of another type": a_text_at(lambda keys: keys.tenants()),
    "what is said of limits of another type": a_text_at(lambda keys: keys.limits_said()),
    "a state of another type": a_text_at(lambda keys: keys.room("io")),
    "runs of another type": a_text_at(lambda keys: keys.room_runs("io")),
    "openings of another type": a_text_at(lambda keys: keys.room_openings("io")),
    "ends of another type": a_text_at(lambda keys: keys.room_ends("io")),
    "turns of another type": a_text_at(lambda keys: keys.room_turns("io", 3)),
    "flows of another type": a_text_at(lambda keys: keys.room_flows("io", 3, "a")),
    "a line of another type": a_text_at(lambda keys: keys.room_line("io", "3:1:a")),
    "words of another type": a_text_at(lambda keys: keys.room_workers("io")),
    "times of another type": a_text_at(lambda keys: keys.room_told("io")),
    "flows without limits of another type": a_text_at(lambda keys: keys.room_plain("io")),
    "flows without limits that are none": lambda transport, _: transport.client.zadd(
        transport.keys.room_plain("io"), {"~": 1, "r~3:1:z~r": 0, "3:9": 0}
    ),
    "no turn": lambda transport, _: transport.client.delete(transport.keys.room_turns("io", 3)),
}
WITHOUT_LIMITS = {
    "a line of another type": a_text_at(lambda keys: keys.room_plain_line("io", "3:1:a~r")),
}
LIMITS = [
    pytest.param((), SPOILED | WITHOUT_LIMITS, id="without limits"),
    pytest.param((HUNDRED_AT_ONCE,), SPOILED, id="with limits"),
]


@pytest.mark.parametrize(("gates", "ways"), LIMITS)
def test_all_other_calls_go_on_and_new_ones_are_sent_whatever_was_written(transport_of_a_module, gates, ways):
    for name, spoil in ways.items():
        transport = Transport(transport_of_a_module.client)
        print(name)
        all_others_go_on(transport, spoil, gates, is_line_lost=spoil in WITHOUT_LIMITS.values())


def all_others_go_on(transport, spoil, gates, *, is_line_lost):
    transport.fetch(2, 2)
    transport.publish([Call(f"a.1.{number}", tenant="a", run_id="r", gates=gates) for number in range(6)])
    spoiled = min(transport.waiting)
    lost = transport.waiting if is_line_lost else {spoiled}
    spoil(transport, spoiled)
    transport.publish([Call("b.1.1", tenant="b", gates=gates)])
    came = []
    for _ in range(12):
        deliveries = transport.fetch(2, 2)
        came += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
    assert {f"a.1.{number}" for number in range(6)} - lost | {"b.1.1"} <= set(came)
    assert transport.waiting == set()


@pytest.mark.parametrize("name", ["gate", "holders", "aside"])
def test_a_gate_of_another_type_is_made_anew(transport, name):
    keys = transport.keys
    key = {
        "gate": keys.gate("concurrency|t|"),
        "holders": keys.holders("concurrency|t|"),
        "aside": keys.room_aside("io", "concurrency|t|"),
    }[name]
    transport.fetch(4, 4)
    transport.publish([Call(f"a.1.{number}", gates=(ONE_AT_ONCE,)) for number in range(3)])
    transport.client.delete(key)
    transport.client.set(key, "not ours")
    transport.publish([Call("a.1.3", gates=(ONE_AT_ONCE,), run_id="other")])
    came = []
    for _ in range(20):
        deliveries = transport.fetch(4, 4)
        came += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
        transport.advance(1000)
    assert sorted(came) == [f"a.1.{number}" for number in range(4)]


def test_what_waits_goes_to_a_stream_of_its_own_queue_wherever_it_says(transport):
    transport.fetch(2, 2)
    transport.publish([Call(f"a.1.{number}", tenant="a", gates=(HUNDRED_AT_ONCE,)) for number in range(6)])
    audit = transport.keys.limits_audit()
    readers = "toolfleet:lane:anybody"
    transport.client.zadd(readers, {"one": transport.now + 60_000})
    for call_id, lane in zip(sorted(transport.waiting), (audit, transport.keys.queue("cpu", 3)), strict=False):
        write_call(transport, call_id, ["3:1:a", "r", 0, readers, lane, ["id", call_id, "by", "mallory"]])
    came = [delivery[2] for _ in range(3) for delivery in transport.fetch(2, 2)]
    assert sorted(came) == [f"a.1.{number}" for number in range(6)]
    assert not transport.client.exists(audit, transport.keys.queue("cpu", 3))
