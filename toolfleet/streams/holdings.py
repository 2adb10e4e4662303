"""What this process holds of one broker, whatever becomes of the connection: unsent acknowledgements and the like.

A dropped connection changes nothing here. Tasks that were running go on, and are acknowledged on the next connection.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import redis
from kombu.log import get_logger

from toolfleet.keys import DEAD_LETTERS_MAX, Keys
from toolfleet.streams import scripts
from toolfleet.streams.entries import entry_of
from toolfleet.streams.keeper import Keeper
from toolfleet.streams.names import GROUP, RETURNED, consumer_name, home_of

logger = get_logger("toolfleet.streams")

DEAD_LETTER_FIELD_BYTES: Final = 65536
"""A field of a dead letter is cut to this size."""

LOG_EVERY_S: Final = 60.0

Item = TypeVar("Item")
Value = TypeVar("Value")

Reference = Callable[[], Any]
"""A weak reference to a delivered message. Once it is dead, nobody can run or acknowledge that message."""


class Holdings:
    """The messages that this process has been delivered by one broker, and what is still to be said about them.

    `acks`, `parked` and `dead` are deques, so any thread may append; `flush` sends them, on the consuming thread.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.consumer = consumer_name()
        self.keeper = Keeper()
        self.receiving: weakref.WeakSet[Any] = weakref.WeakSet()
        """The QoS of each open channel."""
        self.orphans: dict[str, Reference] = {}
        """Messages whose channel was lost while they were held: running, waiting in a pool, or dropped by Celery."""
        self.started: set[str] = set()
        """Tags of messages whose work has begun; whoever runs them adds them. They are never handed back."""
        self.acks: deque[str] = deque()
        self.parked: deque[tuple[str, bool]] = deque()
        self.dead: deque[tuple[str, str]] = deque()
        self._logged_s: dict[str, float] = {}
        self._flushing = threading.Lock()
        self._taking = threading.Lock()
        """Held while messages are given back, or while a fetch beside that may take them again."""

    def bury(self, tag: str, reason: str) -> None:
        """Send a message to the dead letters. One reason is logged once a minute: a flood must not fill the disk."""
        self.dead.append((tag, reason))
        now_s = time.monotonic()
        if now_s - self._logged_s.get(reason, float("-inf")) >= LOG_EVERY_S:
            self._logged_s[reason] = now_s
            logger.warning("message %s goes to the dead letters, as others may for the same reason: %s", tag, reason)

    def knows(self, tag: str) -> bool:
        """Return whether some part of this process has the message, or has something to say about it."""
        return tag in self.orphans or any(tag in qos.held for qos in self.receiving) or tag in self._spoken_of()

    def abandoned(self, among: Mapping[str, Reference]) -> list[str]:
        """Return those that nobody can run any more: Celery drops what waits when a connection is lost."""
        gc.collect()  # Celery's requests are in reference cycles
        running = self.running()
        return [tag for tag, message in tuple(among.items()) if message() is None and tag not in running]

    def running(self) -> set[str]:
        """Return the tags of the messages whose work has begun, as the pool or Celery knows."""
        celery_state = sys.modules.get("celery.worker.state")
        if celery_state is None:
            return set(self.started)
        return self.started | {_tag_of_request(request) for request in tuple(celery_state.active_requests)}

    @property
    def has_news(self) -> bool:
        """Whether there is anything to be said about messages."""
        return bool(self.acks or self.parked or self.dead)

    def may_take(self) -> bool:
        """Whether messages that were given back may be taken again now; if so, `taken` must follow.

        Not while something is still to be given back: if only the reply to that was lost it will be said again, and
        what had been taken again meanwhile would be taken from whoever runs it here.
        """
        if not self._taking.acquire(blocking=False):
            return False
        if self.parked:
            self._taking.release()
            return False
        return True

    def taken(self) -> None:
        """Say that the reply to that has come, or never will."""
        self._taking.release()

    def flush(self, client: redis.Redis) -> None:
        """Send what has been said about messages. What cannot be sent stays here for the next time."""
        if not self.has_news:
            return
        with self._flushing:
            _send_all(self.acks, lambda tags: self._acknowledge(client, tags))
            self._give_back(client)
            _send_all(self.dead, lambda items: self._bury(client, items))

    def _give_back(self, client: redis.Redis) -> None:
        if self.parked and self._taking.acquire(blocking=False):  # else whoever takes says when that is over
            try:
                _send_all(self.parked, lambda items: self._park(client, items))
            finally:
                self._taking.release()

    def _spoken_of(self) -> set[str]:
        # Copied before they are read: other threads append meanwhile.
        return {*self.acks, *(tag for tag, _ in tuple(self.parked)), *(tag for tag, _ in tuple(self.dead))}

    def _acknowledge(self, client: redis.Redis, tags: list[str]) -> None:
        # One transaction: an entry acknowledged but not deleted would count as waiting for ever.
        with client.pipeline(transaction=True) as pipeline:
            for stream, ids in _by_stream((tag, None) for tag in tags):
                pipeline.execute_command("XACK", stream, GROUP, *(entry_id for entry_id, _ in ids))
                pipeline.execute_command("XDEL", stream, *(entry_id for entry_id, _ in ids))
            pipeline.execute()

    def _park(self, client: redis.Redis, items: list[tuple[str, bool]]) -> None:
        park = client.register_script(scripts.PARK)
        for uncounted in (False, True):
            for stream, ids in _by_stream(item for item in items if item[1] is uncounted):
                arguments: list[str | int] = [GROUP, self.consumer, RETURNED, int(uncounted)]
                park(keys=[stream], args=[*arguments, *(entry_id for entry_id, _ in ids)])

    def _bury(self, client: redis.Redis, items: list[tuple[str, str]]) -> None:
        bury = client.register_script(scripts.BURY)
        for stream, reasons in _by_stream(items):
            queue = stream.removeprefix(self.keys.queue("", 0).rpartition(":")[0]).rpartition(":")[0]
            arguments: list[str | int] = [GROUP, DEAD_LETTERS_MAX, home_of(queue) or queue, DEAD_LETTER_FIELD_BYTES]
            for entry_id, reason in reasons:
                arguments += (entry_id, reason)
            bury(keys=[stream, self.keys.dead_letters(), self.keys.counters()], args=arguments)


_MAX_BATCH = 500
"""Entries in one command; more would keep Redis busy for milliseconds at a time."""


def _send_all(waiting: deque[Item], send: Callable[[list[Item]], None]) -> None:
    while waiting:
        batch = list(waiting)[:_MAX_BATCH]  # a copy: others append meanwhile
        send(batch)
        # Only now: what is on its way counts as not said yet.
        for _ in batch:
            waiting.popleft()


def _by_stream(items: Iterable[tuple[str, Value]]) -> Iterable[tuple[str, list[tuple[str, Value]]]]:
    streams: defaultdict[str, list[tuple[str, Value]]] = defaultdict(list)
    for tag, value in items:
        stream, entry_id = entry_of(tag)
        streams[stream].append((entry_id, value))
    return streams.items()


def _tag_of_request(request: Any) -> str:
    message = getattr(request, "_message", None)
    return str(getattr(message, "delivery_tag", ""))


class _Registry:
    """One `Holdings` for each broker and namespace that this process consumes from; a fork starts anew."""

    def __init__(self) -> None:
        self._pid = 0
        self._by_broker: dict[tuple[Any, ...], Holdings] = {}

    def __call__(self, broker: tuple[Any, ...], keys: Keys) -> Holdings:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._by_broker = {}
        return self._by_broker.setdefault((*broker, keys.namespace), Holdings(keys))


holdings_of = _Registry()
