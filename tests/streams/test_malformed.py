"""Entries that no worker may be given: each goes to the dead letters with its reason, and the next one is served."""

from __future__ import annotations

import pytest

from tests.streams.harness import ids_of, publish, until
from toolfleet.streams import GROUP

HEADERS = {"task": "tests.noop", "id": "x"}
BODY = [[], {}, {}]

MALFORMED = {
    "no fields of ours": {"x": "y"},
    "no headers": {"b": BODY, "p": {}},
    "headers are not JSON": {"b": BODY, "h": "{", "p": {}},
    "headers are a list": {"b": BODY, "h": [], "p": {}},
    "properties are a number": {"b": BODY, "h": HEADERS, "p": 5},
    "delivery_info is text": {"b": BODY, "h": HEADERS, "p": {"delivery_info": "x"}},
    "reply_to is an object": {"b": BODY, "h": HEADERS, "p": {"reply_to": {}}},
    "body is not JSON": {"b": "\x80", "h": HEADERS, "p": {}},
    "body is 5": {"b": 5, "h": HEADERS, "p": {}},
    "body is an object": {"b": {}, "h": HEADERS, "p": {}},
    "body is null": {"b": "null", "h": HEADERS, "p": {}},
    "body without options": {"b": [[], {}], "h": HEADERS, "p": {}},
    "id is an object": {"b": BODY, "h": HEADERS | {"id": {"a": 1}}, "p": {}},
    "id is missing": {"b": BODY, "h": {"task": "t"}, "p": {}},
    "id is empty": {"b": BODY, "h": HEADERS | {"id": ""}, "p": {}},
    "task is a number": {"b": BODY, "h": HEADERS | {"task": 7}, "p": {}},
    "timelimit is a number": {"b": BODY, "h": HEADERS | {"timelimit": 5}, "p": {}},
    "timelimit holds text": {"b": BODY, "h": HEADERS | {"timelimit": ["1", None]}, "p": {}},
    "stamps is a list": {"b": BODY, "h": HEADERS | {"stamps": [1]}, "p": {}},
    "retries is text": {"b": BODY, "h": HEADERS | {"retries": "many"}, "p": {}},
    "compressed": {"b": BODY, "h": HEADERS | {"compression": "application/x-gzip"}, "p": {}},
    "protocol 1 without id": {"b": {"task": "t", "args": []}, "h": {}, "p": {}},
    "too large": {"b": '"' + "x" * 2000 + '"', "h": {}, "p": {}},
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_entry_is_buried_and_the_next_one_served(fields, add, connect, inbox, client, keys, letters):
    entry = add(**fields)
    publish(connect(), "io", "good")
    reader = inbox(max_message_bytes=1024)
    assert ids_of(reader.drain(1)) == ["good"]
    (letter,) = letters()
    assert letter["entry"].decode() == entry
    assert letter["reason"]
    assert client.xpending(keys.queue("io", 3), GROUP)["pending"] == 1
    assert client.hget(keys.counters(), "dead_letters") == b"1"


def test_a_claim_that_is_no_number_is_left_to_the_worker(add, inbox):
    add(b=BODY, h=HEADERS, p={}, id="x", claim="soon")
    assert inbox().drain(1)[0].headers["claimed_s"] == 0


def test_a_claim_key_of_another_type_loses_no_message(add, inbox, client, keys):
    client.lpush(keys.claim("x"), "nonsense")
    add(b=BODY, h=HEADERS, p={}, id="x", claim="60")
    assert ids_of(inbox().drain(1)) == ["x"]


def test_a_queue_key_of_another_type_does_not_stop_the_other_queues(connect, inbox, client, keys):
    client.set(keys.queue("io", 0), "nonsense")
    publish(connect(), "io", "good")
    assert ids_of(inbox().drain(1)) == ["good"]


def test_a_flood_of_malformed_entries_is_buried_whole(client, keys, inbox, letters):
    with client.pipeline() as pipeline:
        for _ in range(1500):
            pipeline.xadd(keys.queue("io", 3), {"x": "y"})
        pipeline.execute()
    reader = inbox()
    until(lambda: reader.nothing_comes(0.1) and len(letters()) == 1500, 20)
    assert client.xlen(keys.queue("io", 3)) == 0
