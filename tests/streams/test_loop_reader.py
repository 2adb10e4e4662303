"""A channel that is read for on an event loop of asyncio keeps what it promises where kombu's poller reads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from kombu.asynchronous import Hub

from tests.streams.harness import Inbox, Server, ack_all, ids_of, publish, queue_named
from toolfleet.connections import connect_async
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED, Priority, consumer_name, loop_reader
from toolfleet.streams.direct import DirectPublisher, TaskMessage
from toolfleet.streams.loop_reader import LoopReader

BRIEFLY_S = 0.3
SOON_S = 15.0


class LoopInbox(Inbox):
    """A consumer whose messages come on another thread's loop, while this thread turns the channel's own."""

    def __init__(self, connection: Any, server: Server, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        super().__init__(connection, options.pop("queues", ("io",)), options.pop("prefetch", 0))
        self.threads: set[int] = set()
        self.consumer.on_message = self._take
        self.hub = Hub()
        connection.transport.register_with_event_loop(connection.connection, self.hub)
        self.hub.call_repeatedly(0.02, lambda: None)  # so that a turn is short
        settings = Settings(redis_url=f"unix://{server.socket}")
        self.reader = LoopReader(self.channel, loop, partial(connect_async, settings))
        self.channel.read_by(self.reader)

    def _take(self, message: Any) -> None:
        self.threads.add(threading.get_ident())
        self.messages.append(message)

    def turn_until(self, holds: Callable[[], object], within_s: float = SOON_S) -> None:
        deadline_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline_s, f"not within {within_s} s"
            self.hub.run_once()

    def drain(self, count: int, timeout_s: float = SOON_S) -> list[Any]:
        self.turn_until(lambda: len(self.messages) >= count, timeout_s)
        return [self.messages.popleft() for _ in range(count)]

    def nothing_comes(self, wait_s: float = BRIEFLY_S) -> bool:
        until_s = time.monotonic() + wait_s
        self.turn_until(lambda: time.monotonic() > until_s)
        return not self.messages


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def inbox(connect, server, client, loop) -> Iterator[Callable[..., LoopInbox]]:
    inboxes: list[LoopInbox] = []

    def inbox(*queues: str, prefetch: int = 0, **options: Any) -> LoopInbox:
        queues = queues or ("io",)
        inboxes.append(LoopInbox(connect(**options), server, loop, queues=queues, prefetch=prefetch))
        return inboxes[-1]

    yield inbox
    for each in inboxes:
        holdings = each.channel.holdings
        each.consumer.cancel()
        each.connection.release()
        each.hub.close()
        holdings.orphans.clear()  # of this process: what one test leaves in hand would be the next one's


def waiting(client: redis.Redis, keys: Any, queue: str = "io") -> int:
    return client.xlen(keys.queue(queue, 3))


def tells_slots(client: redis.Redis, keys: Any, slots: int, queue: str = "io") -> bool:
    return client.hget(keys.room(queue), "slots") == str(slots).encode()


def publish_as_orchestrators_do(server: Server, prefix: str, count: int) -> None:
    """What is more than the workers' slots waits in the room of the queue."""
    headers = [{"task": "tests.noop", "id": f"{prefix}.{n}"} for n in range(count)]
    messages = [
        TaskMessage("io", Priority.NORMAL, each, b"[[],{},{}]", tenant="a", run_id="r", deadline_unix_s=2e9)
        for each in headers
    ]

    async def send() -> None:
        async with connect_async(Settings(redis_url=f"unix://{server.socket}")) as client:
            await DirectPublisher(client, Settings().keys).publish(messages)

    asyncio.run(send())


def held_by(client: redis.Redis, keys: Any, consumer: str) -> int:
    return len(client.xpending_range(keys.queue("io", 3), GROUP, "-", "+", 1000, consumer))


def test_messages_come_in_order_on_the_loops_thread_and_are_gone_once_acknowledged(connect, inbox, client, keys, loop):
    names = [f"m.{n}" for n in range(600)]
    publish(connect(), "io", *names)
    reader = inbox()
    got = reader.drain(600)
    assert ids_of(got) == names
    assert reader.threads == {loop._thread_id}
    ack_all(got)
    reader.turn_until(lambda: waiting(client, keys) == 0)


def test_a_lone_message_that_is_waited_for_comes(connect, inbox):
    reader = inbox()
    assert reader.nothing_comes(2.5)  # several waits long
    publish(connect(), "io", "a")
    assert ids_of(reader.drain(1)) == ["a"]


def test_no_more_comes_than_the_prefetch_count_and_more_when_credit_returns(connect, inbox, client, keys):
    publish(connect(), "io", *"abcdefgh")
    reader = inbox(prefetch=3)
    first = reader.drain(3)
    assert reader.nothing_comes()
    assert held_by(client, keys, consumer_name()) == 3
    ack_all(first)
    assert ids_of(reader.drain(3)) == ["d", "e", "f"]


def test_what_may_lie_ahead_comes_though_it_waits_in_the_room(inbox, server, client, keys, monkeypatch):
    """A read that waits is not told of that: it would go on for its whole time, which is long here."""
    slots, more = 2, 40
    monkeypatch.setattr(loop_reader, "SILENT_S", 10 * SOON_S)
    reader = inbox(prefetch=slots)
    monkeypatch.setattr(reader.channel, "brpop_timeout", 10 * SOON_S)
    reader.turn_until(lambda: tells_slots(client, keys, slots))
    reader.channel.qos.take_ahead(more)
    publish_as_orchestrators_do(server, "first", slots)
    first = reader.drain(slots)
    publish_as_orchestrators_do(server, "more", more)
    assert waiting(client, keys) < more
    ack_all(first[:1])
    assert len(reader.drain(more)) == more


def test_a_requeued_message_comes_again_and_counts_its_delivery(connect, inbox):
    publish(connect(), "io", "a")
    reader = inbox(prefetch=1)
    reader.drain(1)[0].requeue()
    [again] = reader.drain(1)
    assert (ids_of([again]), again.headers["deliveries"]) == (["a"], 2)


def test_queues_of_one_level_take_turns(connect, inbox):
    connection = connect()
    publish(connection, "io", *(f"io.{n}" for n in range(20)))
    publish(connection, "cpu", *(f"cpu.{n}" for n in range(20)))
    reader = inbox("io", "cpu", prefetch=5)
    queues = []
    for _ in range(4):
        batch = reader.drain(5)
        queues.append({name.partition(".")[0] for name in ids_of(batch)})
        ack_all(batch)
    assert set.union(*queues) == {"io", "cpu"}


def test_after_the_end_nothing_more_is_taken_and_what_did_not_start_is_handed_back_uncounted(
    connect, inbox, client, keys
):
    publish(connect(), "io", "a", "b")
    reader = inbox()
    messages = reader.drain(2)
    reader.channel.qos.started.add(messages[0].delivery_tag)
    del messages[1]
    reader.consumer.cancel()
    publish(connect(), "io", "c")
    assert reader.nothing_comes()
    assert held_by(client, keys, consumer_name()) == 1
    [returned] = client.xpending_range(keys.queue("io", 3), GROUP, "-", "+", 10, RETURNED)
    assert returned["times_delivered"] == 0


def test_what_comes_while_reading_stops_is_delivered_or_handed_back_never_both(connect, inbox, client, keys):
    stream, told = keys.queue("io", 3), connect()
    for round_ in range(10):
        reader = inbox()
        publish(told, "io", f"first.{round_}")
        reader.drain(1)[0].ack()
        sender = threading.Thread(target=publish, args=(told, "io", *(f"{round_}.{n}" for n in range(50))))
        sender.start()
        reader.consumer.cancel()
        sender.join()
        messages = list(reader.messages)
        held = {
            entry["message_id"].decode()
            for entry in client.xpending_range(stream, GROUP, "-", "+", 100, consumer_name())
        }
        # Celery has dropped none yet, so all that were delivered are held here, and all others are free.
        assert held == {message.delivery_info["entry_id"] for message in messages}
        assert waiting(client, keys) == 50
        client.delete(stream)


def test_a_queue_that_is_added_is_read_and_one_that_is_cancelled_is_not(connect, inbox):
    reader = inbox("io")
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.consumer.add_queue(queue_named("cpu"))
    reader.consumer.consume()
    publish(connect(), "cpu", "b")
    reader.drain(1)[0].ack()
    reader.consumer.cancel_by_queue("io")
    reader.nothing_comes(1.2)  # a read on its way may still bring something of it, which goes back
    publish(connect(), "io", "c")
    publish(connect(), "cpu", "d")
    assert ids_of(reader.drain(1)) == ["d"]
    assert reader.nothing_comes(1.5)


def test_consuming_can_begin_again_after_it_was_cancelled(connect, inbox):
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.consumer.cancel()
    reader.consumer.consume()
    publish(connect(), "io", "b")
    assert ids_of(reader.drain(1)) == ["b"]


def test_a_reply_that_never_arrived_is_found_and_what_it_brought_comes_again(connect, inbox, client, keys):
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.reader.stop()
    publish(connect(), "io", "lost")
    client.xreadgroup(GROUP, consumer_name(), {keys.queue("io", 3): ">"})
    [message] = reader.drain(1)
    assert (ids_of([message]), message.headers["deliveries"]) == (["lost"], 1)


@pytest.mark.parametrize(
    "mishap",
    [
        pytest.param(lambda client, keys: client.client_kill_filter(_type="normal", skipme=True), id="connections cut"),
        pytest.param(lambda client, keys: client.script_flush(), id="scripts forgotten"),
        pytest.param(lambda client, keys: client.delete(keys.queue("io", 3)), id="stream deleted"),
    ],
)
def test_reading_goes_on_after(mishap, connect, inbox, client, keys):
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.turn_until(lambda: waiting(client, keys) == 0)
    reader.channel.connection_errors  # noqa: B018  # connected by now
    threading.Timer(0.2, mishap, (client, keys)).start()
    time.sleep(0.5)
    publish(connect(), "io", "b")
    deadline_s = time.monotonic() + SOON_S
    while not reader.messages and time.monotonic() < deadline_s:
        try:
            reader.hub.run_once()
        except reader.channel.connection_errors:
            time.sleep(0.05)  # Celery would connect anew; the reader has a connection of its own
    assert ids_of(list(reader.messages)) == ["b"]


def test_a_reader_whose_task_a_tool_has_cancelled_begins_again(connect, inbox, loop):
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()

    def cancel_all() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    loop.call_soon_threadsafe(cancel_all)
    publish(connect(), "io", "b")
    assert ids_of(reader.drain(1)) == ["b"]


def test_of_two_messages_of_one_claimed_call_one_comes(connect, inbox, client, keys):
    reader = inbox()
    publish(connect(), "io", "warm")
    reader.drain(1)[0].ack()
    reader.nothing_comes(1.5)  # from here on it waits with a read that does not claim by itself
    publish(connect(), "io", "a", "a", claim=60)
    reader.drain(1)
    assert reader.nothing_comes()
    reader.turn_until(lambda: client.hget(keys.counters(), "duplicate_messages") == b"1")
    reader.turn_until(lambda: waiting(client, keys) == 1)


def test_a_server_that_stands_still_is_waited_for(connect, inbox, server):
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    server.pause()
    threading.Timer(2.0, server.resume).start()
    time.sleep(2.2)
    publish(connect(), "io", "b")
    assert ids_of(reader.drain(1)) == ["b"]


def test_what_is_said_to_go_back_twice_is_not_taken_from_whoever_runs_it_here(connect, inbox, client, keys):
    publish(connect(), "io", "a")
    reader = inbox(heartbeat_s=60)  # so that it does not wait for this thread to look for lost replies
    reader.drain(1)[0].requeue()
    holdings = reader.channel.holdings
    [said] = holdings.parked
    holdings.flush(client)
    holdings.parked.append(said)  # as where only the reply was lost
    time.sleep(2.5)  # more than the time between two fetches
    assert not reader.messages
    [message] = reader.drain(1)
    reader.turn_until(lambda: not holdings.parked)
    assert held_by(client, keys, consumer_name()) == 1
    assert held_by(client, keys, RETURNED) == 0
    message.ack()


def test_what_cannot_go_back_as_its_stream_is_gone_holds_up_no_others(connect, inbox, client, keys):
    publish(connect(), "io", "a")
    reader = inbox()
    [message] = reader.drain(1)
    client.delete(keys.queue("io", 3))
    message.requeue()
    publish(connect(), "io", "b")
    [message] = reader.drain(1)
    assert ids_of([message]) == ["b"]
    message.ack()
    reader.turn_until(lambda: not reader.channel.holdings.parked)


def test_closing_without_a_cancel_leaves_what_runs_in_hand_and_ends_the_reading(connect, inbox, client, keys):
    publish(connect(), "io", "a")
    reader = inbox()
    [message] = reader.drain(1)
    holdings = reader.channel.holdings
    reader.channel.close()
    publish(connect(), "io", "b")
    time.sleep(BRIEFLY_S)
    assert not reader.messages
    assert message.delivery_tag in holdings.orphans


def lose_a_reply(reader: LoopInbox, connect: Callable[..., Any], client: redis.Redis, keys: Any) -> None:
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.turn_until(lambda: waiting(client, keys) == 0)
    reader.reader.stop()
    publish(connect(), "io", "lost")
    client.xreadgroup(GROUP, consumer_name(), {keys.queue("io", 3): ">"})


def test_what_was_in_a_lost_reply_is_handed_back_uncounted_when_the_last_consumer_leaves(connect, inbox, client, keys):
    reader = inbox()
    lose_a_reply(reader, connect, client, keys)
    reader.consumer.cancel()
    reader.channel.close()
    [returned] = client.xpending_range(keys.queue("io", 3), GROUP, "-", "+", 10, RETURNED)
    assert returned["times_delivered"] == 0


def test_what_was_in_a_lost_reply_is_handed_back_uncounted_by_a_channel_that_never_read(connect, inbox, client, keys):
    reader = inbox()
    other = reader.connection.channel()  # as Celery has one for control
    lose_a_reply(reader, connect, client, keys)
    assert other.qos.can_consume()
    reader.channel.close()  # as where a connection was lost: nothing was cancelled
    other.close()
    [returned] = client.xpending_range(keys.queue("io", 3), GROUP, "-", "+", 10, RETURNED)
    assert returned["times_delivered"] == 0


def test_whoever_cuts_idle_connections_cuts_none_that_the_reading_needs(connect, inbox, client):
    client.config_set("timeout", 1)
    try:
        reader = inbox()
        assert reader.nothing_comes(3.0)  # a lost connection would be raised here, and Celery begin anew
        publish(connect(), "io", "a")
        [message] = reader.drain(1)
        message.ack()
    finally:
        client.config_set("timeout", 0)


def test_a_lost_reply_is_found_also_when_nothing_is_consumed_any_more(connect, inbox, client, keys):
    reader = inbox(heartbeat_s=0.3)
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    reader.consumer.cancel()
    publish(connect(), "io", "lost")
    client.xreadgroup(GROUP, consumer_name(), {keys.queue("io", 3): ">"})
    reader.turn_until(lambda: held_by(client, keys, RETURNED) == 1)


def test_reading_that_begins_while_a_blocked_loop_kept_it_from_ending_is_whole(
    connect, inbox, client, loop, monkeypatch
):
    monkeypatch.setattr(loop_reader, "STOP_WITHIN_S", 0.1)
    reader = inbox()
    publish(connect(), "io", "a")
    reader.drain(1)[0].ack()
    loop.call_soon_threadsafe(time.sleep, 0.5)
    reader.reader.stop()
    reader.reader.start()
    for id_ in ("b", "c"):
        client.script_flush()
        publish(connect(), "io", id_)
        [message] = reader.drain(1)
        assert ids_of([message]) == [id_]
        message.ack()
