"""One delivery of one call: what Celery's message says about it, before anything in it is believed.

The same value is read from a message (asyncio pool) and from a task's request (Celery's threads).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from uuid import uuid4

from toolfleet.calls import Effect


class Delivery(NamedTuple):
    """One delivery of a task message, with its delivery count.

    `stream`, `entry_id` and `consumer` locate the pending entry on Redis Streams; they are empty on other brokers.
    `claimed_s` says for how many seconds the transport has claimed the call for this very delivery. `first_id` is the
    entry in which the call was sent, if it was carried to another stream since. `cancelled` says that the call was
    cancelled while it waited, `expired` that its deadline came meanwhile by the server's clock, `returned` that another
    worker had it before, whether or not that delivery counts. `sent_once` says that the call was sent as one with an
    effect that must not happen twice; `contract` is that of the spec that it was sent with.
    """

    task_id: str
    task: str
    text: object
    mac: object
    stream: str = ""
    entry_id: str = ""
    consumer: str = ""
    deliveries: int = 1
    claimed_s: float = 0.0
    cancelled: bool = False
    expired: bool = False
    returned: bool = False
    worker: str = ""
    came_unix_s: float = 0.0
    first_id: str = ""
    sent_once: bool = False
    contract: str = ""
    passed_unix_s: float = 0.0
    """When a worker first passed the message on; on brokers without streams."""
    gates: str = ""
    """The limits that it has passed, as the transport wrote them: settling the call frees its places."""

    @classmethod
    def of(
        cls, headers: Mapping[str, Any], delivery_info: Mapping[str, Any], args: object, *, worker: str = ""
    ) -> Self:
        """Read a message's headers, delivery info and task arguments, whatever they hold."""
        text, mac = args if isinstance(args, list | tuple) and len(args) == 2 else (None, None)
        deliveries = headers.get("deliveries") or (2 if delivery_info.get("redelivered") else 1)
        return cls(
            task_id=headers["id"],
            task=headers["task"],
            text=text,
            mac=mac,
            stream=delivery_info.get("stream", ""),
            entry_id=delivery_info.get("entry_id", ""),
            consumer=delivery_info.get("consumer", ""),
            deliveries=deliveries,
            claimed_s=_number(headers.get("claimed_s")) if delivery_info.get("stream") else 0.0,
            cancelled=bool(headers.get("cancelled")),
            expired=bool(headers.get("expired")),
            returned=bool(headers.get("returned")),
            worker=worker,
            came_unix_s=time.time(),
            first_id=delivery_info.get("first_id", ""),
            sent_once=bool(headers.get("claim")),
            contract=str(headers.get("contract") or ""),
            passed_unix_s=_number(headers.get("passed_unix_s")),
            gates=delivery_info.get("gates", ""),
        )

    def effect(self, declared: Effect) -> Effect:
        """Return what a repeat would do, by the tool as it is here and as the call was sent: releases may change it."""
        return Effect.ONCE if self.sent_once else declared

    @property
    def is_new(self) -> bool:
        """Whether no worker can have had it before. Only Redis Streams can tell.

        Such a message was looked at for a cancel as it was read, or came the moment it was sent or let go on, when the
        waiting room had looked.
        """
        return bool(self.stream) and self.deliveries == 1 and not (self.returned or self.first_id)

    @property
    def claimant(self) -> str:
        """The text that stands in the claim while this message owns the call.

        An entry of a stream is the same in each of its deliveries. Other brokers have nothing that tells a second
        delivery from a second message, so there each delivery counts as its own claimant.
        """
        return self.entry_id or uuid4().hex

    def is_claimed_until(self, unix_s: float) -> bool:
        """Whether the transport has claimed the call so that no other message can until then.

        The transport goes by the entry, which nobody has signed. Of an earlier claim it is not known when it was made.
        """
        return self.is_new and self.came_unix_s + self.claimed_s >= unix_s


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
