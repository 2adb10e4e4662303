"""A kombu channel that consumes from Redis Streams.

A message is pending in Redis from the read on, so a killed worker loses nothing; it is deleted when it is acknowledged,
so streams stay short. The consumer is this process; whether it lives, its lease tells (see `keeper.py`). Names with
BRPOP in them are kombu's, and kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from queue import Empty
from time import monotonic
from typing import Any, Final, NamedTuple

import redis
from kombu.log import get_logger
from kombu.transport.redis import SentinelChannel

from toolfleet.replicas import Replicas
from toolfleet.streams import scripts
from toolfleet.streams.addresses import address_of, sentinel_pool
from toolfleet.streams.claiming import claim
from toolfleet.streams.entries import DeliveredEntry, StreamMessage, tag_of
from toolfleet.streams.holdings import Holdings, holdings_of
from toolfleet.streams.loop_reader import LoopReader
from toolfleet.streams.names import GROUP, RETURNED, consumer_name, home_of
from toolfleet.streams.qos import StreamQoS
from toolfleet.streams.queues import StreamQueues
from toolfleet.streams.reader import LATE_REPLY_S, PAUSE_AFTER_REFUSAL_S, Read, Reader
from toolfleet.streams.unbelieved import Malformed

logger = get_logger("toolfleet.streams")

FORGET_LANE_S: Final = 30.0
"""How long after it was left a lane may still bring what a read under way, or a lost reply of one, has taken there."""

LOST_REPLY_MS: Final = 2500
"""An entry pending for so long that this process does not know of was in a reply that never arrived."""


class Receiver(NamedTuple):
    """The consumer callback of a queue."""

    callback: Callable[[StreamMessage], object]
    no_ack: bool


class StreamChannel(StreamQueues):
    """A kombu channel that consumes from Redis Streams under a lease, so that its end is noticed by others."""

    QoS = StreamQoS

    lease_s = 30.0
    heartbeat_s = 5.0
    max_deliveries = 5
    alive_file = ""
    wait_replicas = 0
    wait_replicas_s = 1.0

    from_transport_options = (
        *StreamQueues.from_transport_options,
        *("lease_s", "heartbeat_s", "max_deliveries", "alive_file", "wait_replicas", "wait_replicas_s"),
    )

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        self._receivers: dict[str, Receiver] = {}
        self._left: dict[str, tuple[Receiver, float]] = {}
        """Lanes that are read no more, and since when: what comes from there yet has a receiver."""
        self._inbox: deque[DeliveredEntry] = deque()
        self._queue_of: dict[str, str] = {}
        self._read: Read | None = None
        self._read_client_id: tuple[Any, int] | None = None
        self._paused_until_s = 0.0
        self._looked_after_s = self._lost_sought_s = monotonic()
        self._starved = False
        self._elsewhere: LoopReader | None = None
        self._first: Callable[[DeliveredEntry], bool] | None = None
        self._copies: deque[int] = deque()
        """How many messages were dropped as copies since they were last counted."""
        super().__init__(connection, **kwargs)
        self._reader = Reader(self.keys, self.priority_steps, consumer_name())

    # --- consuming ----------------------------------------------------------------------------------------------

    @cached_property
    def holdings(self) -> Holdings:
        """What this process holds of this broker."""
        client = self.connection.client
        broker = (client.transport_cls, client.hostname, client.port, client.virtual_host)
        return holdings_of(broker, self.keys)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,  # noqa: FBT001  # kombu's signature
        callback: Callable[[Any], object],
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        """Let `callback` have the queue's messages. With `no_ack` they are acknowledged as they are read."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if queue in self._fanout_queues:
            return
        streams = self.streams(queue)
        self._queue_of.update(dict.fromkeys(streams, queue))
        self._receivers[queue] = Receiver(callback, no_ack)
        self._left.pop(queue, None)
        self._reader.look_for_everything()
        if not no_ack:
            self._look_after(queue, streams)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> StreamMessage | None:  # noqa: FBT001  # kombu's signature
        """Return one message, or None when there is none."""
        streams = self.streams(queue)
        fetch = self.commands.register_script(scripts.FETCH)
        arguments = self._reader.fetch_command(streams, [queue], 1)[3 + len(streams) :]
        reader = Reader(self.keys, self.priority_steps, self.holdings.consumer)
        deliveries = reader.take_fetched(Read(streams, 1, 0, monotonic()), fetch(keys=streams, args=arguments))
        if not deliveries:
            return None
        if not no_ack:
            self._look_after(queue, streams)
        message = self._decode_or_bury(deliveries[0])
        if message is not None:
            self._note(message, no_ack=no_ack)
        self.settle()
        return message

    def _basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super()._basic_cancel(consumer_tag)
        receiver = self._receivers.pop(queue, None)
        if receiver is not None and home_of(queue):
            self._left[queue] = receiver, monotonic()
        if receiver is not None and not self._receivers and not self._closing:
            self._stop_reading()
            self._hand_back_inbox()
            self.qos.hand_back_abandoned()
            self.settle()
            self._leave_lanes()

    def _brpop_start(self, timeout: float | None = None) -> None:
        now_s = monotonic()
        if self._elsewhere is not None:
            self._elsewhere.start()
            return
        if now_s < self._paused_until_s:
            return
        if self._inbox:
            self._deliver_inbox()
        if now_s - self._lost_sought_s >= self.heartbeat_s:
            self.find_lost_replies(now_s)
        if self.holdings.parked:
            self.settle()
            self._reader.look_for_everything()
        if not self.qos.can_consume():
            self._reader.look_for_everything()  # what came while all slots were taken is in the waiting room
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        if queues:
            self._send_read(queues, now_s, self.brpop_timeout if timeout is None else timeout)

    def _send_read(self, queues: list[str], now_s: float, wait_s: float) -> None:
        connection = self.client.connection
        if self._read_client_id is None or self._read_client_id[0] is not connection._sock:
            connection.send_command("CLIENT", "ID")
            self._read_client_id = connection._sock, connection.read_response()
        self._read, command = self._reader.next_read(
            queues, self.qos.credit(), now_s, int(wait_s * 1000), slots=self.qos.slots
        )
        self._in_poll = connection
        self._brpop_sent_at = now_s
        connection.send_command(*command)
        for queue in queues:
            if queue in self._expires:
                self._maybe_update_queues_expire(self.commands, queue)

    def _brpop_read(self, **_: Any) -> bool:
        deliveries = self._receive_read()
        if not deliveries:
            raise Empty
        self._queue_cycle.rotate(self._queue_of[deliveries[0].stream])
        self._inbox.extend(deliveries)
        self._deliver_inbox()
        return True

    def _receive_read(self) -> list[DeliveredEntry]:
        """Return what the read under way delivers. Redis's refusals are logged; lost connections raise."""
        read, self._read = self._read, None
        connection = self.client.connection
        try:
            reply = connection.read_response()
        except self.connection_errors:
            connection.disconnect()
            raise
        except redis.ResponseError as refusal:
            self._heal(refusal)
            return []
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if read is None:
            return []
        deliveries = self._on_replicas(self._claim(self._reader.deliveries(read, reply)), connection)
        if deliveries and monotonic() - read.sent_s > self.brpop_timeout + LATE_REPLY_S:
            return self._still_ours(deliveries)
        return deliveries

    def _claim(self, deliveries: list[DeliveredEntry]) -> list[DeliveredEntry]:
        kept, copies = claim(self.commands, self.keys, deliveries)
        if copies:
            self.drop_copies(copies)
        return kept

    @cached_property
    def replicas(self) -> Replicas:
        """How many replicas are to know that this process has a call before it starts."""
        return Replicas(self.wait_replicas, self.wait_replicas_s, self.keys.counters())

    def _on_replicas(self, deliveries: list[DeliveredEntry], connection: Any) -> list[DeliveredEntry]:
        """Return what may start: all, or nothing where too few replicas know of what this connection has read.

        A connection that is lost raises; what it had read was then in a lost reply.
        """
        if not deliveries or not self.replicas.wanted:
            return deliveries
        commands = self.replicas.commands()
        for command in commands:
            connection.send_command(*command)
        _, reached = (connection.read_response() for _ in commands)
        if reached >= self.replicas.wanted:
            return deliveries
        self.go_back_unreplicated(deliveries, reached)
        self._paused_until_s = monotonic() + PAUSE_AFTER_REFUSAL_S
        return []

    def go_back_unreplicated(self, deliveries: Sequence[DeliveredEntry], reached: int) -> None:
        """Hand back what too few replicas know of. May be called on any thread."""
        wanted = self.replicas.wanted
        logger.warning("%d calls are handed back, as %d of %d replicas know of them", len(deliveries), reached, wanted)
        self.hand_back(deliveries)

    def _count_copies(self) -> None:
        count = 0
        while self._copies:
            count += self._copies.popleft()  # one by one: the reading may add some meanwhile
        if count:
            self.commands.hincrby(self.keys.counters(), "duplicate_messages", count)

    def _heal(self, refusal: redis.ResponseError) -> None:
        self._reader.look_for_everything()  # the fetch script creates groups that are missing
        if isinstance(refusal, redis.exceptions.NoScriptError):
            self.commands.script_load(scripts.FETCH)
        elif not str(refusal).startswith(("NOGROUP", "UNBLOCKED")):
            logger.warning("reading rests for %g s, Redis refused it: %s", PAUSE_AFTER_REFUSAL_S, refusal)
            self._paused_until_s = monotonic() + PAUSE_AFTER_REFUSAL_S

    def _still_ours(self, deliveries: list[DeliveredEntry]) -> list[DeliveredEntry]:
        """Return those that are still pending with this process: during a stall others may have taken them over."""
        with self.commands.pipeline(transaction=False) as pipeline:
            for delivery in deliveries:
                at = delivery.entry_id
                pipeline.xpending_range(delivery.stream, GROUP, at, at, 1, self.holdings.consumer)
            held = pipeline.execute()
        return [delivery for delivery, pending in zip(deliveries, held, strict=True) if pending]

    def _deliver_inbox(self) -> None:
        inbox = self._inbox
        while inbox:
            self._deliver(inbox.popleft())
        self.settle_soon()

    def _deliver(self, delivery: DeliveredEntry) -> None:
        receiver = self._receiver_of(self._queue_of[delivery.stream])
        if receiver is None or not self.qos.can_consume():
            self.holdings.parked.append((tag_of(delivery.stream, delivery.entry_id), True))
            return
        if self._first is not None and not receiver.no_ack and self._first(delivery):
            return
        message = self._decode_or_bury(delivery)
        if message is not None:
            self._note(message, no_ack=receiver.no_ack)
            receiver.callback(message)

    def _receiver_of(self, queue: str) -> Receiver | None:
        receiver = self._receivers.get(queue)
        return self._left[queue][0] if receiver is None and queue in self._left and self._receivers else receiver

    def _decode_or_bury(self, delivery: DeliveredEntry) -> StreamMessage | None:
        try:
            # One delivery beyond the cap goes out, so that its receiver can tell whoever waits that it was given up.
            if delivery.deliveries > self.max_deliveries + 1:
                raise Malformed("delivered too often: it probably kills its workers")
            return StreamMessage.from_delivery(self, delivery, self.holdings.consumer, self.max_message_bytes)
        except Malformed as malformed:
            tag = tag_of(delivery.stream, delivery.entry_id)
            self.holdings.bury(tag, str(malformed))
            return None

    def _note(self, message: StreamMessage, *, no_ack: bool) -> None:
        if no_ack:
            self.holdings.acks.append(message.delivery_tag)
        else:
            self.qos.append(message, message.delivery_tag)

    # --- being read for on another event loop -------------------------------------------------------------------

    def read_by(self, reader: LoopReader, *, first: Callable[[DeliveredEntry], bool] | None = None) -> None:
        """Let this reader do what the poller would; it begins when the poller would.

        `first` is asked about each entry before a message is made of it, and answers whether it has taken it over: then
        it holds it in this channel's `qos`.
        """
        self._elsewhere, self._first = reader, first

    def queues_consumed(self) -> list[str]:
        """Return the queues that have a receiver."""
        return list(self._receivers)

    def queue_of(self, delivery: DeliveredEntry) -> str:
        """Return the queue that an entry was read from."""
        return self._queue_of[delivery.stream]

    def deliver_all(self, deliveries: Iterable[DeliveredEntry]) -> None:
        """Give entries that were read to their receivers. What nobody receives any more is handed back."""
        for delivery in deliveries:
            self._deliver(delivery)

    def drop_copies(self, copies: Collection[DeliveredEntry]) -> None:
        """Acknowledge and count messages whose call another message has claimed. May be called on any thread."""
        self.holdings.acks.extend(tag_of(copy.stream, copy.entry_id) for copy in copies)
        self._copies.append(len(copies))
        self.settle_soon()

    @property
    def is_read_elsewhere(self) -> bool:
        """Whether another event loop reads for it."""
        return self._elsewhere is not None

    def hand_back(self, deliveries: Iterable[DeliveredEntry]) -> None:
        """Give entries that were read, and never delivered here, to another worker."""
        self.holdings.parked.extend((tag_of(d.stream, d.entry_id), True) for d in deliveries)

    # --- settling, and looking after what is held ---------------------------------------------------------------

    def expect_credit(self) -> None:
        """Wake the event loop when credit returns from here on. Called before the loop sends reads."""
        self._starved = True

    def tick(self) -> None:
        """Settle what waits. Called once per turn of the event loop, after it has sent the next read."""
        if self._in_poll:
            self._starved = False
        now_s = monotonic()
        if now_s - self._looked_after_s >= self.heartbeat_s:
            self._look_after_holdings(now_s)
        if self._elsewhere is not None:
            self._elsewhere.seek_lost_if_wanted()
        self.settle()
        self.refusals.count(self.commands)

    def settle_soon(self, *, urgent: bool = False) -> None:
        """Send what waits in the holdings: an event loop at its next tick, at once where there is no loop.

        After this channel has closed, the process's next channel sends it.
        """
        connection = self.connection  # which the channel's thread may take away meanwhile
        if self.closed or connection is None:
            return
        if self._elsewhere is not None:
            connection.cycle.wake()
        elif connection.cycle.evented:
            self._starved |= urgent
            self.wake_for_credit()
        elif not self._inbox:
            self.settle()

    def settle(self) -> None:
        """Send acknowledgements and the like. When Redis refuses them they are kept, and sent later."""
        if monotonic() < self._paused_until_s:
            return
        try:
            self.holdings.flush(self.commands)
            self._count_copies()
        except self.connection_errors:
            raise
        except redis.ResponseError as refusal:
            self._heal(refusal)

    def wake_for_credit(self) -> None:
        """Wake the event loop that reads if it sleeps without a read on its way."""
        if self._elsewhere is not None:
            self._elsewhere.credit_returned()
        elif self._starved and self.connection is not None:
            self._starved = False
            self.connection.cycle.wake()

    def _look_after(self, queue: str, streams: list[str]) -> None:
        holdings, lease_ms = self.holdings, int(self.lease_s * 500)
        # The companion needs a moment to start; the first lease is written here.
        self.commands.set(self.keys.lease(holdings.consumer), "alive", px=lease_ms)
        if home_of(queue):
            self.lanes.read(self.commands, queue, holdings.consumer, lease_ms)
        holdings.keeper.look_after(
            queue,
            streams,
            {
                "redis": address_of(self),
                "group": GROUP,
                "returned": RETURNED,
                "consumer": holdings.consumer,
                "lease": self.keys.lease(holdings.consumer),
                "alive_file": self.alive_file,
                "lease_prefix": self.keys.lease(""),
                "sweeper_prefix": self.keys.sweeper(""),
                # A lease runs for half of lease_s, its absence is watched for a third, looks come every sixth at least.
                "lease_ms": lease_ms,
                "grace_s": self.lease_s / 3,
                "renew_every_s": min(self.heartbeat_s, self.lease_s / 6),
                "sweep_every_s": min(self.heartbeat_s, self.lease_s / 6),
                "term_ms": int(2000 * min(self.heartbeat_s, self.lease_s / 6)),
                "lane_prefix": self.keys.lane(""),
                "lanes_prefix": self.keys.lanes(""),
                "claim_prefix": self.keys.claim(""),
                "queue_prefix": self.keys.queue("", 0).removesuffix(":0"),
                "levels": self.priority_steps,
                "keep_lane_script": scripts.KEEP_LANE,
                "retire_lane_script": scripts.RETIRE_LANE,
                "sweep_script": scripts.SWEEP,
                "leave_script": scripts.LEAVE,
            },
        )

    def leave_lane(self, lane: str) -> None:
        """Take back the word for a lane that was cancelled, while others are read: what waits there is not for us."""
        self.holdings.keeper.leave_lane(lane)
        self.lanes.leave(self.commands, lane, self.holdings.consumer)

    def _forget_lanes(self, now_s: float) -> None:
        """Forget lanes that were left a while ago, once nothing of theirs is in hand: tools may change for ever."""
        for lane in [lane for lane, (_, left_s) in self._left.items() if now_s - left_s >= FORGET_LANE_S]:
            streams = self.streams(lane)
            if any(self._pending_for(stream, 0) for stream in streams):
                continue
            del self._left[lane]
            for stream in streams:
                self._queue_of.pop(stream, None)
            self.holdings.keeper.forget(lane)

    def _leave_lanes(self) -> None:
        """Stop reading lanes. What waits in them is for their other readers, or goes to the queue."""
        lanes = [queue for queue in dict.fromkeys(self._queue_of.values()) if home_of(queue)]
        if lanes:
            self.holdings.keeper.leave_lanes()
        for lane in lanes:
            try:
                self.lanes.leave(self.commands, lane, self.holdings.consumer)
            except redis.ResponseError as refusal:
                logger.debug("a sweep will empty lane %s: %s", lane, refusal)

    def _look_after_holdings(self, now_s: float) -> None:
        """Replace a lost companion, and hand back what nobody here can run any more."""
        self._looked_after_s = now_s
        self.holdings.keeper.ensure()
        self._forget_lanes(now_s)
        if self.holdings.orphans:
            self.qos.hand_back(self.holdings.abandoned(self.holdings.orphans))
        is_reading = self._in_poll or (self._elsewhere is not None and self._receivers)
        if not is_reading and now_s - self._lost_sought_s >= self.heartbeat_s:
            self.find_lost_replies(now_s)

    def find_lost_replies(self, now_s: float) -> None:
        """Hand back what Redis has delivered to this process and nobody here has seen. Called between two reads."""
        self._lost_sought_s = now_s
        self._hand_back_unseen(self._queue_of, LOST_REPLY_MS)

    def _hand_back_unseen(self, streams: Iterable[str], idle_ms: int) -> None:
        tags = [tag for stream in streams for tag in self._pending_for(stream, idle_ms)]
        self.holdings.parked.extend((tag, True) for tag in tags if not self.holdings.knows(tag))

    def _pending_for(self, stream: str, idle_ms: int) -> list[str]:
        try:
            pending: Any = self.commands.xpending_range(
                stream, GROUP, "-", "+", 10_000, self.holdings.consumer, idle=idle_ms
            )
        except redis.ResponseError:
            return []  # no such group yet
        return [tag_of(stream, entry["message_id"].decode()) for entry in pending]

    # --- connections --------------------------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        """End the read on its way; what it brings at the last moment goes to the inbox."""
        if self._elsewhere is not None:
            self._elsewhere.stop()
        if not self._in_poll or self._read_client_id is None:
            return
        try:
            self.commands.execute_command("CLIENT", "UNBLOCK", self._read_client_id[1])
        except redis.ResponseError as refusal:
            logger.debug("the last read ends by itself: %s", refusal)
        self._inbox.extend(self._receive_read())

    def _hand_back_inbox(self) -> None:
        self.hand_back(self._inbox)
        self._inbox.clear()

    def close(self) -> None:
        """Close. After a clean end (every consumer was cancelled) what never came to a start is handed back at once."""
        if self._elsewhere is not None:
            self._elsewhere.stop()
        if not self.closed and self._qos is not None:
            try:
                self._leave(clean=not self._receivers)
            except (*self.connection_errors, redis.RedisError) as error:
                logger.debug("channel closed without a word to Redis: %r", error)
                self._qos.orphan()
        self._in_poll = None
        super().close()

    def _end_lease(self) -> None:
        holdings = self.holdings
        leave = self.commands.register_script(scripts.LEAVE)
        arguments: list[str | int] = [GROUP, RETURNED, holdings.consumer, 1]
        leave(keys=[self.keys.lease(holdings.consumer), *holdings.keeper.streams], args=arguments)
        holdings.keeper.dismiss()

    def _leave(self, *, clean: bool) -> None:
        holdings = self.holdings
        holdings.receiving.discard(self.qos)
        if not clean:
            # The connection is gone or about to be: what there is to say, the next channel says.
            self._hand_back_inbox()
            self.qos.orphan()
            return
        self._stop_reading()
        self._hand_back_inbox()
        self.qos.hand_back_unstarted()
        self.settle()
        self._leave_lanes()
        if not holdings.orphans and not holdings.receiving and holdings.keeper.streams:
            # The end of the lease counts a delivery of all that is pending, and what was in a lost reply never started:
            # be it another channel's, closed before this one as its connection was lost.
            self._hand_back_unseen(holdings.keeper.streams, idle_ms=0)
            self.settle()
            self._end_lease()


class SentinelStreamChannel(StreamChannel, SentinelChannel):  # type: ignore[misc]  # kombu ships no types
    """A stream channel on the master that Redis Sentinel names."""

    from_transport_options = (
        *StreamChannel.from_transport_options,
        *("master_name", "min_other_sentinels", "sentinel_kwargs", "sentinel_fanout_compat"),
    )

    def _sentinel_managed_pool(self, asynchronous: bool = False) -> Any:  # noqa: FBT001  # kombu's signature
        manager, pool = sentinel_pool(self, self._connparams(asynchronous))
        if asynchronous:
            self._async_sentinel_manager = manager
        else:
            self._sentinel_manager = manager
        return pool
