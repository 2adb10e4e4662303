"""Lanes of a queue: what waits where nobody reads any more goes to the queue, as often delivered as it was."""

from time import monotonic

import pytest

from tests.streams.harness import LEASE_S, ack_all, ids_of, publish, until
from toolfleet.streams import GROUP, home_of, lane_name
from toolfleet.streams.channel import FORGET_LANE_S

LANE = lane_name("io", "0123456789ab")


def entries(client, keys, queue, priority=3):
    return [
        {name.decode(): value.decode() for name, value in fields.items()}
        for _, fields in client.xrange(keys.queue(queue, priority))
    ]


def test_a_queue_whose_name_only_looks_like_a_lane_is_none():
    assert home_of(LANE) == "io"
    assert home_of("io.lane-fast") is None
    assert home_of("io") is None


def test_what_waits_in_a_lane_goes_home_when_its_last_reader_stops(connect, client, keys, inbox):
    reader = inbox("io", LANE, prefetch=1)
    publish(connect(), LANE, "first", "second", "third")
    [held] = reader.drain(1)
    reader.consumer.cancel()
    assert [fields["earlier"] for fields in entries(client, keys, "io")] == ["0", "0"]
    held.ack()
    held.channel.settle()
    assert sorted(ids_of(inbox("io").drain(2))) == ["second", "third"]


def test_a_call_that_may_have_begun_still_counts_as_that_when_it_comes_home(connect, client, keys, inbox):
    reader = inbox("io", LANE)
    publish(connect(), LANE, "begun", claim=60)
    [message] = reader.drain(1)
    message.reject(requeue=True)
    reader.consumer.cancel()
    [again] = inbox("io").drain(1)
    assert again.headers["deliveries"] == 2
    assert again.headers["claimed_s"] > 0
    assert again.delivery_info["first_id"] == message.delivery_info["entry_id"]
    assert client.get(keys.claim("begun")).decode() == again.delivery_info["entry_id"]


def test_an_empty_lane_that_nobody_reads_leaves_nothing_behind(connect, client, keys, inbox):
    reader = inbox("io", LANE)
    publish(connect(), LANE, "only")
    ack_all(reader.drain(1))
    reader.consumer.cancel()
    reader.channel.settle()
    inbox("io")  # its companion sweeps
    until(lambda: not client.exists(keys.lanes("io"), keys.lane(LANE), keys.queue(LANE, 3)), 2 * LEASE_S)


def test_a_lane_is_left_while_its_queue_is_read_and_what_is_in_hand_ends_as_ever(connect, client, keys, inbox):
    reader = inbox("io", LANE, prefetch=1)
    publish(connect(), LANE, "first", "second")
    [held] = reader.drain(1)
    reader.consumer.cancel_by_queue(LANE)
    reader.channel.leave_lane(LANE)
    assert client.zrange(keys.lane(LANE), 0, -1) == []
    assert len(entries(client, keys, "io")) == 1, "what nobody had read went home"
    in_half_a_minute = monotonic() + FORGET_LANE_S
    reader.channel._forget_lanes(in_half_a_minute)
    assert keys.queue(LANE, 3) in reader.channel.holdings.keeper.streams, "as long as something is in hand"
    held.ack()
    reader.channel.settle()
    assert ids_of(reader.drain(1)) == ["second"]
    reader.channel._forget_lanes(in_half_a_minute)
    assert keys.queue(LANE, 3) not in reader.channel.holdings.keeper.streams


@pytest.mark.parametrize("of_lane", [True, False])
def test_a_queues_figures_and_its_purge_know_its_lanes(connect, client, keys, inbox, of_lane):
    inbox("io", LANE)
    client.xgroup_create(keys.queue("io", 3), GROUP, mkstream=True)  # as a worker's first read does
    connection = connect()
    publish(connection, LANE if of_lane else "io", *"abc")
    assert connection.default_channel.queue_declare("io", passive=True).message_count == 3
    assert connection.default_channel.queue_purge("io") == 3
    assert client.xlen(keys.queue(LANE, 3)) == client.xlen(keys.queue("io", 3)) == 0


def test_what_was_left_in_a_lane_whose_readers_are_lost_is_swept_home(connect, client, keys, inbox):
    client.sadd(keys.lanes("io"), LANE)
    publish(connect(), LANE, "left")
    assert ids_of(inbox("io").drain(1, timeout_s=3 * LEASE_S)) == ["left"]
