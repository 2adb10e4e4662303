"""Where a call stands in its queue: with a worker, or waiting, and behind how many others.

Reads the streams of our own transport and changes nothing there. A message is found by reading what waits and what is
held, a page at a time and up to a bound, so this is for those who ask about a call, never for the way of a call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import orjson
import redis
import redis.asyncio

from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.streams import GROUP, RETURNED
from toolfleet.waiting.explain import Waiting, why

PAGE: Final = 200
"""Entries in one script call: a millisecond of the server's time."""

WAITING_MAX: Final = 2000
"""A call behind more than these is told "more than 2000"."""

HELD_MAX: Final = 10_000
"""Calls with workers that are looked through."""

FOUND_MAX: Final = 10_000
"""Entries that are remembered, so that a call with a worker is found at once the next time."""

FIND: Final = lua("toolfleet.orchestrator.fleet", "find")


class QueuePosition(NamedTuple):
    """Where a call stands in its queue. `attempt` counts its deliveries, `before` the calls that are taken first.

    A queue and its lanes take turns: `before` counts what is ahead in the one that has the call.
    """

    is_with_worker: bool
    attempt: int = 0
    before: int | None = None
    is_at_least: bool = False
    """There are more before it than were counted."""
    consumer: str = ""
    """Who has it: a worker's name on the queue, by which its lease is known."""
    held_s: float | None = None
    """For how long, by the clock of Redis."""
    waiting: Waiting | None = None
    """Why it waits, where that is a limit or its turn."""


class QueuePositions:
    """Finds calls in their queues."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._find = client.register_script(FIND)
        self._found: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def of(self, call_id: str, queue: str, priority: int) -> QueuePosition | None:
        """Return the position of a call; None when no message of it is found, or when the broker cannot tell.

        Raises StoreUnreachable.
        """
        return (await self.of_all({call_id: (queue, priority)})).get(call_id)

    async def of_all(self, wanted: Mapping[str, tuple[str, int]]) -> dict[str, QueuePosition]:
        """Return the positions of calls, whose queues and priorities are given, likewise: of those that are found."""
        found = {} if self._settings.broker_url else await self._in_rooms(wanted)
        for call_id, (queue, priority) in wanted.items():
            if call_id not in found and (position := await self._of_one(call_id, queue, priority)) is not None:
                found[call_id] = position
        return found

    async def _in_rooms(self, wanted: Mapping[str, tuple[str, int]]) -> dict[str, QueuePosition]:
        """Return the positions of those calls that limits or turns hold back: one look for all of a queue."""
        by_queue: dict[tuple[str, int], list[str]] = {}
        for call_id, place in wanted.items():
            if call_id not in self._found:  # which were with a worker
                by_queue.setdefault(place, []).append(call_id)
        found = {}
        for (queue, priority), call_ids in by_queue.items():
            for call_id, waiting in (await why(self._client, self._settings.keys, call_ids, queue, priority)).items():
                before, is_at_least = waiting.before, waiting.others_between
                found[call_id] = QueuePosition(
                    is_with_worker=False, before=before, is_at_least=is_at_least, waiting=waiting
                )
        return found

    async def _of_one(self, call_id: str, queue: str, priority: int) -> QueuePosition | None:
        """Return the position of a call that no limit held back when that was looked at."""
        if self._settings.broker_url:
            return QueuePosition(is_with_worker=True) if await self._claimed_entry(call_id) else None
        if position := await self._look_where_it_was(queue, priority, call_id):
            return position
        if self._found.pop(call_id, None) is not None:  # it came back from its worker, perhaps to wait
            return (await self.of_all({call_id: (queue, priority)})).get(call_id)
        at_least = None
        for name in (queue, *await self._lanes(queue)):
            position = await self._search(self._settings.keys.queue(name, priority), call_id)
            if position is not None and not position.is_at_least:
                return position
            at_least = at_least or position
        return at_least

    async def _lanes(self, queue: str) -> list[str]:
        names = cast("set[bytes]", await self._client.smembers(self._settings.keys.lanes(queue)))
        return sorted(text_of(name) for name in names)

    async def _look_where_it_was(self, queue: str, priority: int, call_id: str) -> QueuePosition | None:
        if (found := self._found.get(call_id)) and (position := await self._look_up_held(*found)):
            return position
        # A claim names the call's first entry. Where there are lanes, that may have been carried to another stream.
        entry_id = await self._claimed_entry(call_id)
        if not entry_id or await self._lanes(queue):
            return None
        return await self._look_up_held(self._settings.keys.queue(queue, priority), entry_id)

    async def _search(self, stream: str, call_id: str) -> QueuePosition | None:
        # What waits comes first: a call that a worker takes meanwhile is then found among those that are held.
        entry_id, before, is_all = await self._find_among(stream, call_id, "waiting", WAITING_MAX)
        if entry_id:
            return QueuePosition(is_with_worker=False, before=before)
        held_id, _, _ = await self._find_among(stream, call_id, "held", HELD_MAX)
        if held_id and (position := await self._look_up_held(stream, held_id)):
            self._remember(call_id, stream, held_id)
            return position
        return None if is_all else QueuePosition(is_with_worker=False, before=before, is_at_least=True)

    async def _find_among(self, stream: str, call_id: str, which: str, at_most: int) -> tuple[str, int, bool]:
        """Return the id of the call's message or "", how many come before it, and whether all were looked at."""
        mark = b'"id":' + orjson.dumps(call_id)
        after, before = "", 0
        while before < at_most:
            found, looked_at, last, *held = await self._find(keys=[stream], args=[GROUP, mark, which, after, PAGE])
            # Who asks for one call of a run asks for the others, and all that are held have been read by now.
            for calls in held:
                for held_call, entry_id in zip(calls[::2], calls[1::2], strict=True):
                    self._remember(text_of(held_call), stream, text_of(entry_id))
            before += looked_at
            if found or looked_at < PAGE:
                return found.decode(), before, True
            after = last.decode()
        return "", before, False

    async def _look_up_held(self, stream: str, entry_id: str) -> QueuePosition | None:
        """Return the position of a message that was delivered; None once it is settled."""
        try:
            pending = await self._pending(stream, entry_id, entry_id, 1)
        except redis.ResponseError:  # no group: nothing was ever delivered
            return None
        if not pending:
            return None
        attempt = pending[0]["times_delivered"]
        if (consumer := text_of(pending[0]["consumer"])) != RETURNED:
            held_s = pending[0]["time_since_delivered"] / 1000
            return QueuePosition(is_with_worker=True, attempt=attempt, consumer=consumer, held_s=held_s)
        # Handed back, or taken from a lost worker: those are taken first, in their old order.
        earlier = await self._pending(stream, "-", f"({entry_id}", PAGE, RETURNED)
        is_at_least = len(earlier) == PAGE
        return QueuePosition(is_with_worker=False, attempt=attempt, before=len(earlier), is_at_least=is_at_least)

    async def _pending(
        self, stream: str, first: str, last: str, count: int, consumer: str | None = None
    ) -> list[dict[str, Any]]:
        reply = await self._client.xpending_range(stream, GROUP, first, last, count, consumername=consumer)
        return cast("list[dict[str, Any]]", reply)

    async def _claimed_entry(self, call_id: str) -> str:
        """Return the message that may cause the call's effect; "" without one, and for tools that may be repeated."""
        claimed = cast("bytes | None", await self._client.get(self._settings.keys.claim(call_id)))
        return text_of(claimed) if claimed else ""

    def _remember(self, call_id: str, stream: str, entry_id: str) -> None:
        self._found[call_id] = stream, entry_id
        if len(self._found) > FOUND_MAX:
            self._found.popitem(last=False)
