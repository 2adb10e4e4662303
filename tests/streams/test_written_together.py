"""Claims and results that are written many at once: of each comes what would come of it if it were written alone.

On a server that has the command for it, and on one that has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.streams.harness import Server, ids_of, publish, temporary_server, until
from toolfleet.keys import Keys
from toolfleet.scripts import manifest, wire_script
from toolfleet.streams import GROUP

TOGETHER = "MSETEX"
RETURNED = b"f" * 64 + b'{"type":"returned","content":"1"}'
FAILED = b"f" * 64 + b'{"type":"failed","kind":"error","message":"no"}'
TTL_S = int(manifest()["constants"]["RESULT_TTL_MS"]) / 1000
KEPT, LATE, HAD_ONE = 1, 0, 2


@pytest.fixture(scope="module", params=["newest", "older"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    without = ("--rename-command", TOGETHER, "") if request.param == "older" else ()
    with temporary_server(*without) as server:
        assert bool(server.client.execute_command("COMMAND LIST", "FILTERBY", "PATTERN", TOGETHER)) is not bool(without)
        yield server


@pytest.fixture
def claims(client: redis.Redis, keys: Keys) -> Callable[..., dict[str, str]]:
    """Returns who has the claims of these calls."""

    def claims(*call_ids: str) -> dict[str, str]:
        found = client.mget([keys.claim(call_id) for call_id in call_ids])
        return {call_id: entry.decode() for call_id, entry in zip(call_ids, found, strict=True) if entry is not None}

    return claims


def entries_of(messages) -> dict[str, str]:
    return {message.headers["id"]: message.delivery_info["entry_id"] for message in messages}


def test_each_call_of_a_batch_is_claimed_for_its_own_entry_and_as_long_as_it_may_take(
    connect, inbox, client, keys, claims
):
    connection = connect()
    publish(connection, "io", "a", "b", "c", claim=600)
    publish(connection, "io", "d", "e", "f", claim=6000)
    publish(connection, "io", "repeatable")
    got = inbox().drain(7)
    assert ids_of(got) == ["a", "b", "c", "d", "e", "f", "repeatable"]
    assert [message.headers["claimed_s"] for message in got] == [600] * 3 + [6000] * 3 + [0]
    entries = entries_of(got)
    assert claims(*entries) == {call_id: entries[call_id] for call_id in "abcdef"}
    assert all(590 < client.ttl(keys.claim(call_id)) <= 601 for call_id in "abc")
    assert all(5990 < client.ttl(keys.claim(call_id)) <= 6001 for call_id in "def")


def test_copies_in_one_batch_come_once_and_leave_the_others_alone(connect, inbox, client, keys, claims):
    publish(connect(), "io", "a", "twice", "b", "twice", "c", "twice", claim=60)
    got = inbox().drain(4)
    assert ids_of(got) == ["a", "twice", "b", "c"]
    assert claims(*entries_of(got)) == entries_of(got)
    until(lambda: client.hget(keys.counters(), "duplicate_messages") == b"2", 10)
    assert client.xlen(keys.queue("io", 3)) == 4


def test_a_call_that_another_message_has_claimed_is_dropped_from_its_batch(connect, inbox, client, keys, claims):
    client.set(keys.claim("taken"), "1-1")
    publish(connect(), "io", "a", "b", "taken", "c", claim=60)
    got = inbox().drain(3)
    assert ids_of(got) == ["a", "b", "c"]
    assert claims("taken", *entries_of(got)) == {"taken": "1-1"} | entries_of(got)
    assert client.hget(keys.counters(), "duplicate_messages") == b"1"


def test_a_call_with_a_result_is_told_apart_in_its_batch(connect, inbox, client, keys):
    client.set(keys.result("ended"), RETURNED)
    publish(connect(), "io", "a", "ended", "b", claim=60)
    got = inbox().drain(3)
    assert [(message.headers["id"], message.headers["claimed_s"]) for message in got] == [
        ("a", 60),
        ("ended", 0),
        ("b", 60),
    ]
    assert client.hget(keys.counters(), "duplicate_messages") is None


def test_what_is_given_back_together_keeps_its_claims(connect, inbox, claims):
    publish(connect(), "io", "a", "b", "c", claim=60)
    reader = inbox()
    first = reader.drain(3)
    for message in first:
        message.requeue()
    again = reader.drain(3)
    assert {message.headers["id"]: message.headers["deliveries"] for message in again} == {"a": 2, "b": 2, "c": 2}
    assert all(message.headers["claimed_s"] > 0 for message in again)
    assert claims("a", "b", "c") == entries_of(first) == entries_of(again)


@pytest.fixture
def read(client: redis.Redis, keys: Keys) -> Callable[..., list[bytes]]:
    """Reads a message for each of these calls; their entries."""
    client.set(keys.orchestrator("o"), "lease")
    stream = keys.queue("io", 3)

    def read(*call_ids: str) -> list[bytes]:
        entries = [client.xadd(stream, {"id": call_id}) for call_id in call_ids]
        client.xgroup_create(stream, GROUP, "0")
        client.xreadgroup(GROUP, "w", {stream: ">"})
        return entries

    return read


@pytest.fixture
def settle(client: redis.Redis, keys: Keys, read: Callable[..., list[bytes]]) -> Callable[..., list[int]]:
    """Settles calls together, by their entries if they were read before."""
    script = client.register_script(wire_script("settle"))

    def settle(*results: tuple[str, bytes], entries: list[bytes] | None = None) -> list[int]:
        entries = entries or read(*(call_id for call_id, _ in results))
        words = [keys.job(""), keys.queue("io", 3), "w", keys.result(""), keys.replies("o"), len(results)]
        for entry, (call_id, sealed) in zip(entries, results, strict=True):
            words += [entry, call_id, sealed, ""]
        return script(args=words)

    return settle


@pytest.fixture
def told(client: redis.Redis, keys: Keys) -> Callable[[], list[tuple[str, bytes]]]:
    """Returns what the orchestrator was told."""

    def told() -> list[tuple[str, bytes]]:
        news = []
        for _, fields in client.xrange(keys.replies("o")):
            if b"c" in fields:  # of one call alone
                news.append((fields[b"c"].decode(), fields[b"r"]))
            else:
                news += [(call_id.decode(), sealed) for call_id, sealed in fields.items()]
        return news

    return told


def test_each_result_of_a_batch_is_stored_told_and_counted(settle, told, client, keys):
    results = [("r.1.0", RETURNED), ("r.1.1", FAILED), ("r.1.2", RETURNED)]
    assert settle(*results) == [KEPT] * 3
    assert [(call_id, client.get(keys.result(call_id))) for call_id, _ in results] == results
    assert all(TTL_S - 10 < client.ttl(keys.result(call_id)) <= TTL_S for call_id, _ in results)
    assert told() == results
    assert client.hgetall(keys.calls_settled()) == {b"returned": b"2", b"error": b"1"}
    assert client.xlen(keys.queue("io", 3)) == 0


def test_the_first_result_of_a_call_counts_also_within_a_batch(settle, told, client, keys):
    client.set(keys.result("had"), FAILED)
    results = [("r.1.0", RETURNED), ("twice", RETURNED), ("twice", FAILED), ("had", RETURNED), ("r.1.1", RETURNED)]
    assert settle(*results) == [KEPT, KEPT, HAD_ONE, HAD_ONE, KEPT]
    assert client.get(keys.result("twice")) == RETURNED
    assert client.get(keys.result("had")) == FAILED
    assert told() == [("r.1.0", RETURNED), ("twice", RETURNED), ("r.1.1", RETURNED)]
    assert client.hgetall(keys.calls_settled()) == {b"returned": b"3"}
    assert client.xlen(keys.queue("io", 3)) == 0


def test_a_call_that_is_another_workers_by_now_is_left_to_it(settle, told, read, client, keys):
    entries = read("r.1.0", "lost", "r.1.1")
    client.xclaim(keys.queue("io", 3), GROUP, "another", 0, [entries[1]])
    results = [("r.1.0", RETURNED), ("lost", RETURNED), ("r.1.1", RETURNED)]
    assert settle(*results, entries=entries) == [KEPT, LATE, KEPT]
    assert client.get(keys.result("lost")) is None
    assert told() == [results[0], results[2]]
    assert client.xrange(keys.queue("io", 3)) == [(entries[1], {b"id": b"lost"})]


def test_a_full_server_settles_none_of_a_batch(settle, told, read, client, keys):
    entries = read("r.1.0", "r.1.1", "r.1.2")
    results = [("r.1.0", RETURNED), ("r.1.1", RETURNED), ("r.1.2", RETURNED)]
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            settle(*results, entries=entries)
    finally:
        client.config_set("maxmemory", 0)
    assert not client.exists(*(keys.result(call_id) for call_id, _ in results))
    assert told() == []
    assert client.xpending(keys.queue("io", 3), GROUP)["pending"] == 3
    assert settle(*results, entries=entries) == [KEPT] * 3
