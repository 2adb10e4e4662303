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
    "an index of plain ones of another type": a_text_at(lambda keys: keys.room_plain("io")),
    "an index of plain ones that are none": lambda transport, _: transport.client.zadd(
        transport.keys.room_plain("io"), {"~": 1, "r~3:1:z~": 0, "3:9": 0}
    ),
    "deadlines of nobody": lambda transport, _: transport.client.zadd(
        transport.keys.room_ends("io"), {"~": 1, "r~3:1:z~": 2, "r~3:1:a~": 3, "a.1.9": 4}
    ),
    "no turn": lambda transport, _: transport.client.delete(transport.keys.room_turns("io", 3)),
}


def parts_of(call_id, *parts):
    """What somebody has written over the parts of a call in the list that it waits in."""

    def spoil(transport, _):
        [line] = transport.client.scan_iter(transport.keys.room_plain_line("io", "3:1:a*"))
        at = transport.client.lrange(line, 0, -1).index(call_id) - 3
        for place, part in enumerate(parts, at):
            transport.client.lset(line, place, part)

    return spoil


def a_run_that_is_none(transport, _):
    [runs] = transport.client.scan_iter(transport.keys.room_plain_runs("io", "3:1:a*"))
    transport.client.zadd(runs, {"nobody": -7})


def all_runs_of_another_type(transport, _):
    [runs] = transport.client.scan_iter(transport.keys.room_plain_runs("io", "3:1:a*"))
    transport.client.set(runs, "not ours")


def a_list_of_another_type(transport, _):
    [line] = transport.client.scan_iter(transport.keys.room_plain_line("io", "3:1:a*"))
    transport.client.set(line, "not ours")


OF_PLAIN_ONES = {
    "no JSON": parts_of(b"a.1.5", "not ours", ""),
    "JSON of no fields": parts_of(b"a.1.5", "[]", ""),
    "JSON of an odd number of fields": parts_of(b"a.1.5", '["b"]', ""),
    "JSON of what is no text": parts_of(b"a.1.5", '["b", {"x": 1}]', ""),
    "no deadline": parts_of(b"a.1.5", "[]", "{}", "{}", "a.1.5", "", "never"),
    "a run that is none": a_run_that_is_none,
    "runs of another type": all_runs_of_another_type,
}
LOSES_A_LINE = {"a list of another type": a_list_of_another_type}
KINDS = [
    pytest.param((), False, SPOILED | OF_PLAIN_ONES | LOSES_A_LINE, id="without limits"),
    pytest.param((HUNDRED_AT_ONCE,), False, SPOILED | OF_PLAIN_ONES | LOSES_A_LINE, id="with limits"),
    pytest.param((HUNDRED_AT_ONCE,), True, SPOILED, id="with limits, for a lane"),
]


@pytest.mark.parametrize(("gates", "are_for_lane", "ways"), KINDS)
def test_all_other_calls_go_on_and_new_ones_are_sent_whatever_was_written(
    transport_of_a_module, gates, are_for_lane, ways
):
    for name, spoil in ways.items():
        transport = Transport(transport_of_a_module.client)
        print(name)
        calls = [Call(f"a.1.{number}", tenant="a", run_id="r", gates=gates) for number in range(6)]
        lane = {call.call_id for call in calls} if are_for_lane else set()
        all_others_go_on(transport, spoil, calls, lane, is_line_lost=name in LOSES_A_LINE)


def all_others_go_on(transport, spoil, calls, lane, *, is_line_lost):
    transport.fetch(2, 2)
    transport.publish(calls, lanes=lane)
    spoiled = "a.1.5" if spoil in OF_PLAIN_ONES.values() else min(transport.waiting)
    lost = transport.waiting if is_line_lost else {spoiled}
    spoil(transport, spoiled)
    transport.publish([Call("b.1.1", tenant="b", gates=calls[0].gates)])
    came = []
    for _ in range(12):
        deliveries = transport.fetch(2, 2)
        came += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
    assert {call.call_id for call in calls} - lost | {"b.1.1"} <= set(came)
    assert transport.waiting == set()


@pytest.mark.parametrize("are_for_lane", [False, True], ids=["plain", "for a lane"])
def test_deadlines_hold_at_a_shut_gate_where_they_were_written_over(transport, are_for_lane):
    transport.fetch(9, 9)
    calls = [Call(f"a.1.{number}", gates=(ONE_AT_ONCE,), ends_ms=transport.now + 1000) for number in range(6)]
    transport.publish(calls, lanes={call.call_id for call in calls} if are_for_lane else set())
    assert len(transport.fetch(9, 9)) == 1
    transport.client.delete(transport.keys.room_ends("io"))
    transport.client.set(transport.keys.room_ends("io"), "not ours")
    transport.publish([Call("b.1.1", tenant="b", gates=(ONE_AT_ONCE,), ends_ms=transport.now + 5000)])
    assert transport.fetch(9, 9) == []
    transport.advance(1000)
    late = transport.fetch(9, 9)
    assert len(late) == 5
    assert {transport.fields(delivery)[b"over"] for delivery in late} == {b"expired"}
    assert transport.waiting == {"b.1.1"}


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
    calls = [Call(f"a.1.{number}", tenant="a", gates=(HUNDRED_AT_ONCE,)) for number in range(6)]
    transport.publish(calls, lanes={call.call_id for call in calls})
    audit = transport.keys.limits_audit()
    readers = "toolfleet:lane:anybody"
    transport.client.zadd(readers, {"one": transport.now + 60_000})
    for call_id, lane in zip(sorted(transport.waiting), (audit, transport.keys.queue("cpu", 3)), strict=False):
        write_call(transport, call_id, ["3:1:a", "r", 0, readers, lane, ["id", call_id, "by", "mallory"]])
    came = [delivery[2] for _ in range(3) for delivery in transport.fetch(2, 2)]
    assert sorted(came) == [f"a.1.{number}" for number in range(6)]
    assert not transport.client.exists(audit, transport.keys.queue("cpu", 3))


def all_that_comes(transport, rounds=12, advance_ms=0):
    """Calls as they are delivered, two at once, each settled before the next ones are read."""
    came = []
    for _ in range(rounds):
        deliveries = transport.fetch(2, 2)
        came += [delivery[2] for delivery in deliveries]
        for delivery in deliveries:
            transport.settle(delivery)
        transport.advance(advance_ms)
    return came


@pytest.mark.parametrize("gates", [(), (HUNDRED_AT_ONCE,)], ids=["without limits", "with limits"])
def test_a_count_that_is_none_loses_no_call_and_fails_no_publish(transport, gates):
    transport.fetch(2, 2)
    transport.publish([Call(f"a.1.{number}", gates=gates) for number in range(6)])
    transport.client.hset(transport.keys.room("io"), "plain", "x")
    transport.publish([Call(f"a.2.{number}", gates=gates) for number in range(3)])
    came = all_that_comes(transport)
    assert sorted(came) == [*(f"a.1.{number}" for number in range(6)), *(f"a.2.{number}" for number in range(3))]
    assert transport.waiting == set()


@pytest.mark.parametrize("key", ["room_shares", "room_flows"])
@pytest.mark.parametrize("gates", [(), (HUNDRED_AT_ONCE,)], ids=["without limits", "with limits"])
def test_whoever_begins_to_wait_beside_others_has_a_turn_where_half_a_try_has_failed(transport, key, gates):
    transport.fetch(2, 2)
    transport.publish([Call(f"b.1.{number}", 3, "b", gates=gates) for number in range(6)])
    of_tenant = ("a",) if key == "room_flows" else ()
    transport.client.set(getattr(transport.keys, key)("io", 3, *of_tenant), "not ours")
    transport.publish([Call(f"a.1.{number}", 3, "a", gates=gates) for number in range(2)])
    came = []
    for again in range(12):
        # Somebody else always has a turn.
        transport.publish([Call(f"b.{again}.{number}", 3, "b", run_id="2", gates=gates) for number in range(3)])
        came += all_that_comes(transport, rounds=1)
    assert {"a.1.0", "a.1.1"} <= set(came)


@pytest.mark.parametrize("spoiled", ["holders", "gate", "line", "runs", "shares"])
def test_what_has_been_sent_does_not_go_again_where_the_next_flow_cannot_be_read(transport, spoiled):
    one, other = Gate("concurrency", "c", "1", 1.0, 0), Gate("concurrency", "c", "2", 1.0, 0)
    transport.fetch(8, 8)
    transport.publish([Call(f"before.1.{number}", 3, "b") for number in range(9)])
    first = [Call(f"a.1.{number}", 3, "a", "r", (one,)) for number in range(2)]
    second = [Call(f"a.2.{number}", 3, "a", "s", (other,)) for number in range(2)]
    transport.publish([*first, *second])
    keys = transport.keys
    [line] = transport.client.scan_iter(keys.room_plain_line("io", "*~s"))
    [runs] = [key for key in transport.client.scan_iter(keys.room_plain_runs("io", "*")) if b'"2"' in key]
    key = {
        "holders": keys.holders("concurrency|c|2"),
        "gate": keys.gate("concurrency|c|2"),
        "line": line,
        "runs": runs,
        "shares": keys.room_shares("io", 3),
    }[spoiled]
    transport.client.delete(key)
    transport.client.set(key, "not ours")
    came = []
    for _ in range(10):
        deliveries = transport.fetch(8, 8)
        came += [delivery[2] for delivery in deliveries]
        assert sum(delivery[2].startswith("a.1") for delivery in deliveries) <= 1  # no two at once
        for delivery in deliveries:
            transport.settle(delivery)
    assert [call_id for call_id in came if call_id.startswith("a.1")] == ["a.1.0", "a.1.1"]
    assert len(set(came)) == len(came)


def test_names_that_look_like_others_of_another_flow_keep_nobody_from_going(transport):
    transport.fetch(1, 1)
    transport.publish([Call(f"before.1.{number}") for number in range(6)])
    transport.publish([Call("p.1.1", 3, "x~3:2:t~", "")])
    transport.publish([Call(f"q.1.{number}", 3, "t~", "~3:8:x") for number in range(2)])
    came = all_that_comes(transport, rounds=20)
    assert {"p.1.1", "q.1.0", "q.1.1"} <= set(came)
    assert transport.waiting == set()


def test_who_waits_for_a_rate_goes_on_where_somebody_has_deleted_when_it_opens(transport):
    rate = Gate("rate", "t", "", 10.0, 1)
    transport.fetch(4, 4)
    transport.publish([Call(f"a.1.{number}", gates=(rate,)) for number in range(4)])
    transport.fetch(4, 4)
    transport.client.delete(transport.keys.room_openings("io"))
    came = all_that_comes(transport, advance_ms=200)
    assert len(came) == 3
    assert transport.waiting == set()
