"""Queues on Redis Streams as their producers and owners see them: publish, declare, measure, purge, delete.

Each queue has one stream for each priority level, one consumer group, and a sorted set for what is not due yet. Fanout,
bindings and connections are kombu's Redis transport's own. What consumers do is in `channel.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import Any, Final

import redis
from kombu.transport.redis import Channel

from toolfleet.driver import driver
from toolfleet.keys import Keys
from toolfleet.streams import scripts
from toolfleet.streams.entries import StreamMessage, dumps, encode
from toolfleet.streams.lanes import Lanes
from toolfleet.streams.names import GROUP, RETURNED, Priority
from toolfleet.streams.publishing import StreamPublishBatch
from toolfleet.streams.refusals import Refusals
from toolfleet.streams.schedule import due_unix_s, scheduled_member, without_eta
from toolfleet.streams.unbelieved import Malformed, told
from toolfleet.waiting.standing import ask_how_many_wait, how_many_wait

UNSUPPORTED_ARGUMENTS: Final = (
    "x-max-length",
    "x-max-length-bytes",
    "x-dead-letter-exchange",
    "x-single-active-consumer",
)

BINDING_PARTS: Final = 3
"""Routing key, pattern and queue."""

REPLY_TTL_MS: Final = 60_000
"""An answer to `celery inspect` that nobody waits for any more ends after this; its queue is not ours to know."""


class StreamQueues(Channel):  # type: ignore[misc]  # kombu ships no types
    """The part of the channel that needs no consumer."""

    Message = StreamMessage

    namespace = "toolfleet"
    max_message_bytes = 4 * 1024 * 1024

    priority_steps = [int(level) for level in Priority]  # noqa: RUF012  # kombu's attribute, an option may replace it

    from_transport_options = (*Channel.from_transport_options, "namespace", "max_message_bytes")

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        options = connection.client.transport_options
        _refuse_unsupported_options(options)
        self.keys = Keys(options.get("namespace", self.namespace))
        # Two fleets on one server share nothing, control commands and bindings included.
        self.keyprefix_fanout = f"/{{db}}:{self.keys.namespace}."
        self.keyprefix_queue = self.keys.binding("%s")
        self.keyprefix_binding_permanent = self.keys.permanent_binding("%s")
        self.keyprefix_binding_deadlines = self.keys.binding_deadlines()
        self._commands: redis.Redis | None = None
        super().__init__(connection, **kwargs)
        self.lanes = Lanes(self.keys, self.priority_steps)
        self.refusals = Refusals(self.keys)

    def streams(self, queue: str) -> list[str]:
        """Return the streams of a queue, the most urgent first."""
        return [self.keys.queue(queue, level) for level in self.priority_steps]

    # --- publishing ---------------------------------------------------------------------------------------------

    def _inplace_augment_message(self, message: dict[str, Any], exchange: str, routing_key: str) -> None:
        if exchange and self.typeof(exchange).type == "fanout":
            super()._inplace_augment_message(message, exchange, routing_key)
        else:
            message["properties"]["delivery_info"].update(exchange=exchange, routing_key=routing_key)

    def create_publish_batch(self, max_size: int) -> StreamPublishBatch:
        """Return what `Producer.batch()` fills: one round trip for up to `max_size` messages."""
        return StreamPublishBatch(self, max_size)

    def _put(self, queue: str, message: dict[str, Any], _publish_batch: Any = None, **_: Any) -> None:
        for command in self._put_commands(queue, message):
            if _publish_batch is not None:
                _publish_batch.add("execute_command", *command)
            else:
                self.commands.execute_command(*command)

    def _put_commands(self, queue: str, message: dict[str, Any]) -> Iterator[tuple[str | bytes | float, ...]]:
        stream = self._q_for_pri(queue, self._get_message_priority(message))
        headers = message["headers"]
        due_s = due_unix_s(headers)
        if due_s is not None and due_s > time():
            fields = encode(message, without_eta(headers), self.max_message_bytes)
            yield "ZADD", self.keys.scheduled(queue), due_s * 1000, scheduled_member(stream, fields)
            return
        yield (
            "XADD",
            stream,
            "*",
            *encode(message, headers if due_s is None else without_eta(headers), self.max_message_bytes),
        )
        if expires_ms := self._expires.get(queue) or (_is_reply(message) and REPLY_TTL_MS):
            yield "PEXPIRE", stream, expires_ms

    def _q_for_pri(self, queue: str, pri: int) -> str:
        return self.keys.queue(queue, self.priority_steps[max(0, bisect_right(self.priority_steps, pri) - 1)])

    # --- messages to all who listen ------------------------------------------------------------------------------

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, _publish_batch: Any = None, **_: Any
    ) -> None:
        """Publish a message as kombu does, by an encoder that is quick with a batch of events."""
        text = dumps(message)
        for topic in self._get_publish_topics(exchange, routing_key):
            if _publish_batch is not None:
                _publish_batch.add("publish", topic, text)
            else:
                self.commands.publish(topic, text)

    def _receive_one(self, c: Any) -> bool:
        """Read one message of a fanout exchange, and deliver it. kombu would decode whatever it is told."""
        try:
            response = c.parse_response()
        except self.connection_errors:
            self._in_listen = None
            raise
        if not isinstance(response, list | tuple):
            return False
        received = self._handle_message(c, response)
        if not received["type"].endswith(b"message") or not isinstance(received["data"], bytes):
            return False
        return self._deliver_told(received["channel"].decode(errors="replace"), received["data"])

    def _deliver_told(self, channel: str, data: bytes) -> bool:
        exchange = channel.partition(".")[2].partition("/")[0]
        queue = self._fanout_to_queue.get(exchange)
        try:
            message = told(data)
        except Malformed as malformed:
            self.refuse(str(malformed))
            return False
        if queue is None:
            return False
        self.connection._deliver(message, queue)
        return True

    def refuse(self, reason: str) -> None:
        """Note that a message to all was not believed."""
        self.refusals.note(reason)
        self.refusals.count(self.commands)

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Return the bindings of an exchange, without what is none."""
        return [binding for binding in super().get_table(exchange) if len(binding) == BINDING_PARTS]

    # --- queues -------------------------------------------------------------------------------------------------

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:  # noqa: FBT001  # kombu's signature
        for argument in UNSUPPORTED_ARGUMENTS:
            if argument in (kwargs.get("arguments") or {}):
                raise NotImplementedError(f"queue {queue!r} asks for {argument}, which the stream transport has not")
        super()._new_queue(queue, auto_delete=auto_delete, **kwargs)

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **kwargs: Any) -> None:  # noqa: A002  # kombu's signature
        """Declare an exchange of a type that exists here."""
        if (type or "direct") not in self.exchange_types:
            known = ", ".join(sorted(self.exchange_types))
            raise NotImplementedError(f"exchange {exchange!r} is of type {type!r}; the stream transport has {known}")
        super().exchange_declare(exchange, type, **kwargs)

    def _size(self, queue: str) -> int:
        """Return how many messages a worker could take now, from the queue or a lane of it.

        Not those being worked on, not those that are not due; but all in the waiting room, whose limits may open.
        """
        with self.commands.pipeline(transaction=False) as pipeline:
            ask_how_many_wait(pipeline, self.keys, queue)
            for stream in self._streams_with_lanes(queue):
                pipeline.xlen(stream)
                pipeline.xpending(stream, GROUP)
            with_limits, plain, *replies = pipeline.execute(raise_on_error=False)
        ready = sum(_ready(length, pending) for length, pending in zip(replies[::2], replies[1::2], strict=True))
        return ready + how_many_wait((with_limits, plain))

    def _purge(self, queue: str) -> int:
        """Delete what no worker holds, wherever it waits: lanes, schedule, waiting room. Returns how many that were."""
        purge = self.commands.register_script(scripts.PURGE)
        removed = self._purge_room(queue)
        for stream in self._streams_with_lanes(queue):
            while count := int(purge(keys=[stream], args=[GROUP, RETURNED])):
                removed += count
        with self.commands.pipeline() as pipeline:
            pipeline.zcard(self.keys.scheduled(queue))
            pipeline.delete(self.keys.scheduled(queue))
            scheduled: int = pipeline.execute()[0]
        return removed + scheduled

    def _purge_room(self, queue: str) -> int:
        purge, removed = self.commands.register_script(scripts.PURGE_ROOM), 0
        while count := int(purge(keys=[self.keys.queue(queue, self.priority_steps[0])])):
            removed += count
        return removed

    def _streams_with_lanes(self, queue: str) -> list[str]:
        return [stream for name in (queue, *self.lanes.of(self.commands, queue)) for stream in self.streams(name)]

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        super()._delete(queue, *args, **kwargs)
        self._purge_room(queue)
        self.commands.delete(self.keys.scheduled(queue), self.keys.room(queue))

    # --- connections --------------------------------------------------------------------------------------------

    @property
    def commands(self) -> redis.Redis:
        """The client for everything but the evented reads."""
        if self._commands is None or self._commands.connection_pool is not self.pool:
            self._commands = self._create_client()
        return self._commands

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Yield a client. kombu makes a new one each time; this one is kept."""
        yield client or self.commands

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001  # kombu's signature
        parameters: dict[str, Any] = super()._connparams(asynchronous)
        # Replies come as RESP2 lists whatever the client's default is.
        return parameters | {"protocol": 2, "driver_info": driver()}


def _refuse_unsupported_options(options: dict[str, Any]) -> None:
    if options.get("global_keyprefix"):
        raise NotImplementedError("the stream transport has no global_keyprefix: set `namespace` instead")
    if options.get("ack_emulation") is False:
        raise NotImplementedError("the stream transport cannot do without acknowledgements: drop ack_emulation=False")


def _is_reply(message: dict[str, Any]) -> bool:
    return str(message["properties"]["delivery_info"].get("exchange", "")).startswith("reply.")


def _ready(length: int | Exception, pending: dict[str, Any] | Exception) -> int:
    """Return how many entries of a stream are free, from XLEN and XPENDING's summary (an error without a group)."""
    if isinstance(length, Exception):
        return 0
    if isinstance(pending, Exception):
        return length
    returned = sum(each["pending"] for each in pending["consumers"] if each["name"] == RETURNED.encode())
    return length - int(pending["pending"]) + int(returned)
