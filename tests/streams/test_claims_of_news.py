"""What is claimed by the script that is sent behind a read, on one connection, with nothing asked in between."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from toolfleet.streams import GROUP, scripts
from toolfleet.streams.claiming import NEWS_MAX, ClaimsOfNews, claim_commands
from toolfleet.streams.names import consumer_name
from toolfleet.streams.reader import Read, Reader

BLOCK_MS = 50


class Reading:
    """Reads as the loop's reader does: what waits, and the claims behind it, go in one piece."""

    def __init__(self, client: redis.Redis, keys: Any) -> None:
        self.keys, self._client = keys, client
        self.reader = Reader(keys, (0, 3, 6), consumer_name())
        self.claims = ClaimsOfNews(keys, consumer_name())
        self.streams = self.reader.streams(["io"])
        for stream in self.streams:
            client.xgroup_create(stream, GROUP, "0", mkstream=True)
        client.script_load(scripts.CLAIM_NEWS)

    def add(self, call_id: str, *, level: int = 3, claim: Any = 60, **more: Any) -> str:
        fields = {"b": "{}", "h": "{}", "p": "{}", "id": call_id} | ({} if claim is None else {"claim": claim}) | more
        return self._client.xadd(self.keys.queue("io", level), fields).decode()

    def read(self) -> tuple[list[Any], list[Any]]:
        """What one read brings that may go on, and the copies among it."""
        command = ["XREADGROUP", "GROUP", GROUP, consumer_name(), "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS"]
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*command, *self.streams, *(">" * len(self.streams)))
            for behind in self.claims.commands(self.streams):
                pipeline.execute_command(*behind)
            reply, *claimed = pipeline.execute(raise_on_error=False)
        deliveries = self.reader.deliveries(Read(self.streams, 300, 100, 0.0), as_read(reply))
        self.claims.note(deliveries)
        kept, copies = deliveries, []
        for each in claimed:
            kept, copies = self.claims.sorted_out(deliveries, each)
        return kept, copies


def as_read(reply: Any) -> Any:
    """A reply of redis-py's as the server has sent it."""
    pairs = reply.items() if isinstance(reply, dict) else reply or ()
    return [
        (name, [(entry_id, [part for pair in fields.items() for part in pair]) for entry_id, fields in entries])
        for name, entries in pairs
    ]


@pytest.fixture
def reading(client, keys) -> Reading:
    return Reading(client, keys)


def test_what_a_read_brings_is_claimed_by_what_stands_behind_it(reading, client, keys):
    for name in ("first", "second"):
        entry_id = reading.add(name)
        [delivery], copies = reading.read()
        assert (delivery.entry_id, delivery.claimed, copies) == (entry_id, True, [])
        assert client.get(keys.claim(name)).decode() == entry_id
        assert 50 < client.ttl(keys.claim(name)) <= 60


def test_it_is_claimed_at_whatever_level_it_comes(reading, client, keys):
    for level in (3, 6, 0, 6):
        reading.add(f"at.{level}", level=level)
        assert [delivery.claimed for delivery in reading.read()[0]] == [True]
        client.delete(keys.claim(f"at.{level}"))


def test_a_copy_of_another_message_is_told_apart(reading):
    reading.add("call")
    reading.read()
    second = reading.add("call")
    kept, [copy] = reading.read()
    assert (kept, copy.entry_id) == ([], second)


def test_a_call_that_has_a_result_is_left_to_its_worker(reading, client, keys):
    client.set(keys.result("call"), "whatever it is")
    reading.add("call")
    [delivery], copies = reading.read()
    assert (delivery.claimed, copies) == (False, [])


def test_of_more_than_a_few_each_is_claimed_by_whoever_reads_them(reading):
    for number in range(NEWS_MAX + 1):
        reading.add(f"call.{number}")
    kept, _ = reading.read()
    assert [delivery.claimed for delivery in kept] == [False] * (NEWS_MAX + 1)
    assert len(claim_commands(reading.keys, kept)) == 2 * (NEWS_MAX + 1)


def test_what_other_consumers_have_and_what_is_not_to_be_claimed_is_not(reading, client, keys):
    reading.add("theirs")
    client.xreadgroup(GROUP, "another", {keys.queue("io", 3): ">"})
    assert reading.read() == ([], [])
    assert not client.exists(keys.claim("theirs"))
    reading.add("read-only", claim=None)
    assert [delivery.claimed for delivery in reading.read()[0]] == [False]
    # Nothing of late was to be claimed, so nothing is sent behind a read until something is.
    assert reading.claims.commands(reading.streams) == []
    reading.add("call")
    kept, _ = reading.read()
    assert (kept[0].claimed, len(claim_commands(keys, kept))) == (False, 2)
    assert reading.claims.commands(reading.streams) != []


@pytest.mark.parametrize("claim", ["", "soon", "-1", "9" * 30])
def test_junk_in_the_place_of_seconds_claims_nothing_and_stops_nobody(reading, claim):
    reading.add("junk", claim=claim)
    kept, copies = reading.read()
    assert ([delivery.claimed for delivery in kept], copies) == ([False], [])
    reading.add("call")
    assert [delivery.claimed for delivery in reading.read()[0]] == [True]


def test_a_server_that_does_not_know_the_script_has_the_calls_claimed_later(reading, client):
    client.script_flush()
    reading.add("call")
    [delivery], _ = reading.read()
    assert (delivery.claimed, len(claim_commands(reading.keys, [delivery]))) == (False, 2)
