"""Publishing without kombu, for a process that has an event loop: the same entries, a batch in one command.

kombu's producer is synchronous and prepares each message anew; from an event loop it needs a thread. Both cost more
than the call itself (see ARCHITECTURE.md). Only for one kind of message: tasks, due now, on a queue of this transport.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson
import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.limits import Gate
from toolfleet.replicas import Replicas, script_on_replicas
from toolfleet.streams import scripts
from toolfleet.streams.names import Priority


class TaskMessage(NamedTuple):
    """A message of Celery's protocol 2: `headers` with `task`, `id` and perhaps `claim` (seconds), `body` as JSON.

    With a `lane` it goes there rather than to its queue, if anybody reads that lane. What must wait takes its turn by
    `tenant` and `run_id`, and passes its `gates` first. Past its deadline it passes them without being counted.
    """

    queue: str
    priority: Priority
    headers: dict[str, Any]
    body: bytes
    lane: str = ""
    tenant: str = ""
    run_id: str = ""
    gates: tuple[Gate, ...] = ()
    deadline_unix_s: float = 0.0


_NO_LANE: Final = ("", "")

_in_common: Final = attrgetter("queue", "priority", "lane", "tenant", "gates")
"""Returns what messages in a row mostly share, so that it is sent once for all of them."""


def limits_as_arguments(kinds: Collection[tuple[Gate, ...]]) -> list[str | bytes]:
    """Return what the script that publishes is told of the limits of a batch, each kind of them once."""
    arguments: list[str | bytes] = [str(len(kinds))]
    for gates in kinds:
        arguments += _kind_as_arguments(gates)
    return arguments


@lru_cache(maxsize=1024)  # a tool's calls with one key have the same
def _kind_as_arguments(gates: tuple[Gate, ...]) -> tuple[str | bytes, ...]:
    each_gate = [str(each) for gate in gates for each in gate]
    return (orjson.dumps([tuple(gate) for gate in gates]), str(len(gates)), *each_gate)


class DirectPublisher:
    """Adds task messages to their streams, or to the waiting rooms of their queues."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, *, replicas: Replicas | None = None) -> None:
        """`replicas` are to have the messages before they count as published."""
        self._publish = script_on_replicas(client, scripts.PUBLISH, replicas)
        self._keys = keys
        self._places: dict[tuple[str, Priority], tuple[str, bytes]] = {}

    async def publish(self, messages: Sequence[TaskMessage]) -> None:
        """Publish messages in one command, in order. Raises StoreUnreachable; then all or none are in the queues."""
        kinds: dict[tuple[Gate, ...], int] = {}
        arguments: list[str | bytes] = []
        for (queue, priority, lane, tenant, gates), group in groupby(messages, key=_in_common):
            row = list(group)
            stream, properties = self._place(queue, priority)
            arguments += (self._keys.lane(lane), self._keys.queue(lane, priority)) if lane else _NO_LANE
            kind = kinds.setdefault(gates, len(kinds) + 1) if gates else 0
            arguments += (stream, properties, tenant, str(kind), str(len(row)))
            for message in row:
                headers = message.headers
                arguments += (message.body, orjson.dumps(headers), headers["id"], str(headers.get("claim") or ""))
                arguments += (message.run_id, str(int(message.deadline_unix_s * 1000)))
        await self._publish(args=[*limits_as_arguments(kinds), *arguments] if kinds else ["0", *arguments])

    def _place(self, queue: str, priority: Priority) -> tuple[str, bytes]:
        """Return the stream of a queue's level, and the properties that all of its messages have."""
        place = self._places.get((queue, priority))
        if place is None:
            delivery_info = {"exchange": "", "routing_key": queue}
            properties = {"delivery_mode": 2, "delivery_info": delivery_info, "priority": int(priority)}
            place = self._keys.queue(queue, priority), orjson.dumps(properties)
            self._places[queue, priority] = place
        return place
