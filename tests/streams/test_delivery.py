"""What a consumer gets, in which order, how often, and what becomes of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.streams.harness import ack_all, ids_of, publish, until
from toolfleet.streams import GROUP, RETURNED, Priority, consumer_name


def test_an_acknowledged_message_is_gone_from_the_stream(connect, inbox, client, keys):
    publish(connect(), "io", "a")
    reader = inbox()
    ack_all(reader.drain(1))
    assert client.xlen(keys.queue("io", 3)) == 0
    assert client.xpending(keys.queue("io", 3), GROUP)["pending"] == 0


def test_messages_of_one_level_keep_their_order(connect, inbox):
    names = [f"r.{n}" for n in range(1000)]
    publish(connect(), "io", *names)
    assert ids_of(inbox().drain(1000)) == names


def test_urgent_messages_come_first_whenever_they_were_sent(connect, inbox):
    connection = connect()
    publish(connection, "io", "batch", priority=Priority.BATCH)
    publish(connection, "io", "normal", priority=Priority.NORMAL)
    publish(connection, "io", "interactive", priority=Priority.INTERACTIVE)
    reader = inbox(prefetch=1)
    got = []
    for _ in range(3):
        message = reader.drain(1)[0]
        got += ids_of([message])
        message.ack()
    assert got == ["interactive", "normal", "batch"]


def test_queues_of_one_level_take_turns(connect, inbox):
    connection = connect()
    publish(connection, "io", *(f"io.{n}" for n in range(20)))
    publish(connection, "cpu", *(f"cpu.{n}" for n in range(20)))
    reader = inbox("io", "cpu", prefetch=5)
    queues = []
    for _ in range(4):
        batch = reader.drain(5)
        queues += {name.partition(".")[0] for name in ids_of(batch)}
        ack_all(batch)
    assert queues in (["io", "cpu", "io", "cpu"], ["cpu", "io", "cpu", "io"])


def test_no_more_is_delivered_than_the_prefetch_count(connect, inbox, client, keys):
    publish(connect(), "io", *"abcdefgh")
    reader = inbox(prefetch=3)
    reader.drain(3)
    assert reader.nothing_comes()
    assert client.xpending(keys.queue("io", 3), GROUP)["pending"] == 3


def test_a_message_tells_where_it_came_from_and_how_often(connect, inbox, keys):
    publish(connect(), "io", "a")
    message = inbox().drain(1)[0]
    assert message.headers["deliveries"] == 1
    assert message.headers["claimed_s"] == 0
    assert message.delivery_info["stream"] == keys.queue("io", 3)
    assert message.delivery_info["consumer"] == consumer_name()
    assert message.delivery_info["redelivered"] is False
    assert message.payload == [["a"], {}, {}]


def test_a_requeued_message_comes_first_and_counts_its_delivery(connect, inbox):
    publish(connect(), "io", "a", "b", "c")
    reader = inbox(prefetch=1)
    reader.drain(1)[0].requeue()
    again = reader.drain(1)[0]
    assert ids_of([again]) == ["a"]
    assert again.headers["deliveries"] == 2
    assert again.delivery_info["redelivered"] is True


def test_a_message_handed_back_unstarted_does_not_count_the_delivery(connect, inbox):
    publish(connect(), "io", "a")
    reader = inbox(prefetch=1)
    message = reader.drain(1)[0]
    reader.channel.qos.hand_back([message.delivery_tag])
    assert reader.drain(1)[0].headers["deliveries"] == 1


def test_a_consumer_that_ends_hands_back_what_it_did_not_start(connect, inbox, client, keys):
    publish(connect(), "io", *"abcde")
    first = inbox(prefetch=5)
    kept = first.drain(5)
    first.channel.qos.started.add(kept[0].delivery_tag)
    first.consumer.cancel()
    first.connection.release()
    assert client.xpending_range(keys.queue("io", 3), GROUP, "-", "+", 10, RETURNED) != []
    again = inbox(prefetch=10).drain(4)
    assert ids_of(again) == ["b", "c", "d", "e"]
    assert {message.headers["deliveries"] for message in again} == {1}
    kept[0].ack()


def test_forgetting_returns_credit_without_a_word_to_redis(connect, inbox, client, keys):
    publish(connect(), "io", "a", "b")
    reader = inbox(prefetch=1)
    message = reader.drain(1)[0]
    reader.channel.qos.forget(message.delivery_tag)
    assert ids_of(reader.drain(1)) == ["b"]
    assert client.xlen(keys.queue("io", 3)) == 2


def test_the_length_of_a_queue_is_what_a_worker_could_take_now(connect, inbox):
    connection = connect()
    publish(connection, "io", *"abcdef")
    publish(connection, "io", "later", eta=_in(60))
    reader = inbox(prefetch=2)
    held = reader.drain(2)
    assert _length(connection) == 4
    reader.channel.qos.hand_back([held[0].delivery_tag])
    assert _length(connection) == 5


def test_the_length_of_an_unknown_queue_is_refused_as_amqp_does(connect):
    with pytest.raises(connect().channel_errors, match="no queue 'nowhere'"):
        connect().default_channel.queue_declare("nowhere", passive=True)


def test_purging_spares_what_is_being_worked_on(connect, inbox, client, keys):
    connection = connect()
    publish(connection, "io", *(f"r.{n}" for n in range(2500)))
    publish(connection, "io", "later", eta=_in(60))
    reader = inbox(prefetch=10)
    running = reader.drain(10)
    reader.consumer.cancel()
    reader.channel.qos.hand_back([running.pop().delivery_tag])
    assert connection.default_channel.queue_purge("io") == 2492
    assert _length(connection) == 0
    assert client.xlen(keys.queue("io", 3)) == 9
    assert client.zcard(keys.scheduled("io")) == 0


def test_a_scheduled_message_waits_in_redis_and_comes_when_due(connect, inbox, client, keys):
    connection = connect()
    due = time.time() + 1.2
    publish(connection, "io", "later", eta=datetime.fromtimestamp(due, UTC).isoformat())
    reader = inbox()
    assert client.zcard(keys.scheduled("io")) == 1
    message = reader.drain(1)[0]
    assert due <= time.time() < due + 0.5
    assert message.headers["eta"] is None
    assert client.zcard(keys.scheduled("io")) == 0


def test_a_message_whose_time_has_come_is_not_scheduled(connect, inbox):
    publish(connect(), "io", "now", eta=_in(-5))
    assert inbox().drain(1)[0].headers["eta"] is None


def test_what_a_scheduled_set_holds_beside_messages_is_buried(inbox, client, keys, letters):
    client.zadd(keys.scheduled("io"), {"not a message": 0, "[]": 0})
    assert inbox().nothing_comes()
    until(lambda: len(letters()) == 2, 20)
    assert client.zcard(keys.scheduled("io")) == 0


def test_a_second_message_of_a_claimed_call_is_dropped_and_counted(connect, inbox, client, keys):
    publish(connect(), "io", "call", "call", "other", claim=60)
    got = inbox().drain(2)
    assert ids_of(got) == ["call", "other"]
    assert client.get(keys.claim("call")).decode() == got[0].delivery_info["entry_id"]
    assert 0 < client.ttl(keys.claim("call")) <= 61
    assert client.hget(keys.counters(), "duplicate_messages") == b"1"
    assert client.xlen(keys.queue("io", 3)) == 2


def test_a_claim_lasts_from_when_its_call_was_sent_however_long_that_has_waited(connect, inbox, client, keys):
    publish(connect(), "io", "waited", claim=1200)
    stream = keys.queue("io", 3)
    [(sent, fields)] = client.xrange(stream)
    client.delete(stream)
    long_ago_ms = int(sent.decode().partition("-")[0]) - 500_000
    client.xadd(stream, fields, id=f"{long_ago_ms}-0")
    [waited] = inbox().drain(1)
    assert waited.headers["claimed_s"] > 0
    assert 690 < client.ttl(keys.claim("waited")) <= 700


def test_a_claim_of_a_call_that_was_sent_too_long_ago_still_keeps_its_copies_apart(connect, inbox, client, keys):
    publish(connect(), "io", "late", "late", claim=10)
    stream = keys.queue("io", 3)
    copies = client.xrange(stream)
    client.delete(stream)
    for position, (sent, fields) in enumerate(copies):
        long_ago_ms = int(sent.decode().partition("-")[0]) - 500_000
        client.xadd(stream, fields, id=f"{long_ago_ms}-{position}")
    assert ids_of(inbox().drain(1)) == ["late"]
    until(lambda: client.hget(keys.counters(), "duplicate_messages") == b"1", 20)


def test_a_returned_call_keeps_its_claim(connect, inbox):
    publish(connect(), "io", "call", claim=60)
    reader = inbox()
    reader.drain(1)[0].requeue()
    again = reader.drain(1)[0]
    assert again.headers["claimed_s"] > 0
    assert again.headers["deliveries"] == 2


def test_a_message_that_outlives_its_workers_is_delivered_once_more_and_then_buried(connect, inbox, letters):
    publish(connect(), "io", "poison")
    reader = inbox(max_deliveries=2)
    deliveries = []
    for _ in range(3):
        message = reader.drain(1)[0]
        deliveries.append(message.headers["deliveries"])
        message.requeue()
    assert deliveries == [1, 2, 3]
    assert reader.nothing_comes(1.5)
    assert [letter["reason"] for letter in letters()] == [b"delivered too often: it probably kills its workers"]


def test_a_rejected_message_goes_to_the_dead_letters_whole(connect, inbox, client, keys, letters):
    publish(connect(), "io", "a")
    inbox().drain(1)[0].reject()
    (letter,) = letters()
    assert letter["queue"] == b"io"
    assert letter["reason"] == b"rejected by the worker"
    assert letter["raw:b"] == b'[["a"], {}, {}]'
    assert client.xlen(keys.queue("io", 3)) == 0


def test_one_message_can_be_had_without_a_consumer(connect, client, keys):
    connection = connect()
    publish(connection, "io", "a")
    message = connection.default_channel.basic_get("io")
    assert ids_of([message]) == ["a"]
    assert connection.default_channel.basic_get("io") is None
    message.ack()
    assert client.xlen(keys.queue("io", 3)) == 0
    connection.default_channel.close()


def test_a_flushed_server_heals_itself(connect, inbox, client):
    connection = connect()
    reader = inbox()
    publish(connection, "io", "before")
    ack_all(reader.drain(1))
    client.flushall()
    publish(connection, "io", "after")
    assert ids_of(reader.drain(1)) == ["after"]


def test_lost_scripts_are_loaded_again(connect, inbox, client):
    reader = inbox()
    client.script_flush()
    publish(connect(), "io", "a")
    assert ids_of(reader.drain(1)) == ["a"]


def test_a_reply_that_never_arrived_is_noticed(connect, inbox, client, keys):
    """A connection may break after Redis has delivered and before the reply is read."""
    publish(connect(), "io", "a")
    reader = inbox()
    client.xgroup_create(keys.queue("io", 3), GROUP, "0")
    client.xreadgroup(GROUP, consumer_name(), {keys.queue("io", 3): ">"})
    message = reader.drain(1)[0]
    assert ids_of([message]) == ["a"]
    assert message.headers["deliveries"] == 1


def test_a_dropped_connection_leaves_what_is_held_alone(connect, inbox, client):
    publish(connect(), "io", "running")
    reader = inbox(prefetch=1)
    running = reader.drain(1)[0]
    reader.connection.collect()  # what Celery does when it loses the broker
    second = inbox(connection=connect())
    assert second.nothing_comes(1.5)
    running.ack()
    assert second.nothing_comes()
    assert client.xpending("toolfleet:queue:io:3", GROUP)["pending"] == 0


def test_what_nobody_holds_after_a_dropped_connection_goes_back(connect, inbox):
    publish(connect(), "io", "dropped")
    reader = inbox(prefetch=1)
    reader.drain(1)
    reader.connection.collect()
    assert ids_of(inbox(connection=connect()).drain(1)) == ["dropped"]


def test_memory_does_not_grow_with_the_number_of_messages(connect, inbox, client, keys):
    connection, reader = connect(), inbox()

    def memory_after(count):
        for _ in range(count // 1000):
            publish(connection, "io", *(f"r.{n}" for n in range(1000)))
            ack_all(reader.drain(1000))
        lasting = [key for key in client.scan_iter() if client.ttl(key) < 0]  # leases and the like come and go
        return client.memory_usage(keys.queue("io", 3)), sorted(lasting)

    assert memory_after(5000) == memory_after(1000)


def _in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def _length(connection) -> int:
    return connection.default_channel.queue_declare("io", passive=True).message_count
