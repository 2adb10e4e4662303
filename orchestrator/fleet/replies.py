"""The reply stream of one orchestrator: what workers push is read here and handed to whoever waits for it.

A push may be lost, so the results of calls that have been open for a while are looked up in the store as well. Decides
nothing about a call: an expected one is the gatherer's, any other is told to the listener.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from toolfleet.call_news import News, open_news
from toolfleet.calls import ToolResult, run_of
from toolfleet.errors import Refused
from toolfleet.event_loop import stand_back
from toolfleet.logs import FactLog
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.redis_clients import COMMAND_FAILED, AsyncClient, StreamEntry
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.supervision import Kept, Supervisor
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

BLOCK_MS: Final = 5000
"""How long one read waits on the server; only sets how often an idle orchestrator says hello."""

READ_COUNT: Final = 200
"""How many entries are read at once; one has the results of up to 64 calls (`settle_many.lua`)."""

HEARD_AT_ONCE: Final = 1000
"""After so many replies others on the loop have a turn."""

FEW: Final = 8
"""After so few replies, whoever waits for them goes first; after more, the next are read meanwhile."""

TURNS_OF_A_REPLY: Final = 6
"""The turns of the loop in which a result reaches whoever waits for it, and a call that they make next is sent."""

TRIM_AFTER: Final = 1000
"""So many replies that were heard are dropped at once."""

TRIM_EVERY_S: Final = 1.0
"""How long the reply stream of a quiet orchestrator keeps what was heard."""

ID_CHARS: Final = 100
"""How much of an id is logged that is none of ours."""

SWEEP_S: Final = 1.0
"""How often it is seen to that results are found whose push was lost: `look_ups.py` says of which calls."""

RECONNECT_WAIT_S: Final = 0.2
"""How long a reader waits before it asks a server again that has just failed."""


class Listener(Protocol):
    """Hears of calls that no group waits for: those of runs that rest, or that go on without them."""

    def hear_result(self, run_id: str, call_id: str, result: ToolResult) -> None:
        """Take the result of a watched call; it is in the store too."""
        ...

    def hear_news(self, run_id: str, call_id: str, news: News) -> None:
        """Take how far a watched call has come, what it asks, or what it yields."""
        ...

    def hear_stray(self, run_id: str) -> None:
        """Take note that a call of this run is back which nobody waits for; its result is in the store."""
        ...

    def notify(self, run_id: str) -> None:
        """Look at the run again: somebody else has written to it, or its time has come."""
        ...


FIRST_ID: Final = b"0-0"

AHEAD_MAX_MS: Final = 24 * 3600 * 1000
"""How far the server's clock may be ahead of this one; what is told later than that, nobody has told."""

NEWS: Final = frozenset({b"r", b"s", b"p", b"n"})
"""What is told of a call: its result, that it is slow, its progress, and other news of it."""


class ReplyReader:
    """Reads replies, from `start` until `aclose`."""

    def __init__(
        self,
        client: AsyncClient,
        settings: Settings,
        seal: Seal,
        orchestrator_id: str,
        *,
        gatherer: Gatherer,
        listener: Listener,
        on_return: Callable[[], None],
        supervisor: Supervisor,
    ) -> None:
        """`on_return` is called when Redis answers again after it could not be read."""
        self._client = client
        self._seal = seal
        self._replies = settings.keys.replies(orchestrator_id)
        self._gatherer = gatherer
        self._listener = listener
        self._on_return = on_return
        self._supervisor = supervisor
        self._was_away = False
        self._last_id = FIRST_ID
        self._heard, self._trimmed_s = 0, time.monotonic()
        self._kept: list[Kept] = []
        self._closing = False

    def start(self) -> None:
        """Begin to read. What was pushed earlier is still in the stream, and is read first."""
        self._kept = [
            self._supervisor.keep("replies", self._read_forever),
            self._supervisor.keep("result_sweep", self._sweep_forever),
        ]

    async def aclose(self) -> None:
        """Stop reading."""
        self._closing = True
        await asyncio.gather(*(kept.aclose() for kept in self._kept))

    async def _read_forever(self) -> None:
        async with self._client.client() as reader:
            while not self._closing:
                try:
                    # After an outage one that does not wait: what it means is known at once.
                    block_ms = None if self._was_away else self._block_ms
                    behind = {self._replies: self._last_id}
                    streams = await reader.read_streams(behind, count=READ_COUNT, block_ms=block_ms)
                    if self._was_away:
                        self._was_away = False
                        self._gatherer.look_up_all_soon()
                        self._on_return()
                    heard = self._heard
                    await self._hear_all(streams)
                    if self._heard - heard <= FEW:
                        await stand_back(TURNS_OF_A_REPLY)  # whoever waits for one goes on before the next read is sent
                    await self._trim()
                except COMMAND_FAILED as error:
                    self._was_away = True
                    log.warning("replies_unreadable", error=str(error))
                    await asyncio.sleep(RECONNECT_WAIT_S)

    @property
    def _block_ms(self) -> int:
        """How long the next read waits: what was heard is dropped soon, also where nothing follows it."""
        return int(TRIM_EVERY_S * 1000) if self._heard else BLOCK_MS

    async def _hear_all(self, streams: Iterable[tuple[bytes, list[StreamEntry]]]) -> None:
        for _, entries in streams:
            last_believed = time.time() * 1000 + AHEAD_MAX_MS
            # Ids only grow, so the last one speaks for all.
            are_believed = not entries or _ms_of(entries[-1][0]) <= last_believed
            pause_at = self._heard + HEARD_AT_ONCE
            for entry_id, fields in entries:
                if not (are_believed or _ms_of(entry_id) <= last_believed):
                    await self._begin_anew()
                    break
                # Before it is heard: whatever it does to us, it does it once.
                self._last_id = entry_id
                self._hear(fields)
                if self._heard >= pause_at:
                    pause_at += HEARD_AT_ONCE
                    await asyncio.sleep(0)

    async def _trim(self) -> None:
        """Drop what was heard now and then: it is settled in the store too, and the stream need not keep it."""
        if self._heard and (self._heard >= TRIM_AFTER or time.monotonic() - self._trimmed_s > TRIM_EVERY_S):
            # Before: a server that refuses is not asked at once again.
            self._heard, self._trimmed_s = 0, time.monotonic()
            await self._client.xtrim(self._replies, minid=_after(self._last_id), approximate=False)

    async def _begin_anew(self) -> None:
        """Forget a stream with an id that nobody's clock gives: nothing could be added behind it, nor be heard."""
        skip("reply", "an id far ahead of the clock")
        await self._client.delete(self._replies)
        self._last_id = FIRST_ID
        self._gatherer.look_up_all_soon()

    def _hear(self, fields: Mapping[bytes, bytes]) -> None:
        """Take an entry: news of the call `c`, or of many calls the results, by their ids."""
        if b"c" not in fields and b"run" not in fields:
            for call_id, sealed in fields.items():
                self._hear_one(call_id, b"r", sealed)
            return
        for kind, value in fields.items():
            if kind != b"c":
                self._hear_one(fields.get(b"c", b""), kind, value)

    def _hear_one(self, call: bytes, kind: bytes, value: bytes) -> None:
        self._heard += 1
        try:
            if kind == b"run":
                self._listener.notify(value.decode())
                return
            if kind not in NEWS:
                raise Refused("no news of a kind that is known")
            call_id = call.decode()
            if not self._gatherer.hear(call_id, kind, value):
                self._hear_unexpected(call_id, kind, value)
        except (Refused, UnicodeDecodeError) as refusal:
            # Whoever can write to Redis can push here; a call waits on for the result that its worker signed.
            skip("reply", str(refusal), call_id=text_of(call)[:ID_CHARS])

    def _hear_unexpected(self, call_id: str, kind: bytes, sealed: bytes) -> None:
        run_id = self._gatherer.watched_for(call_id)
        if kind == b"r":
            result = self._seal.open_result(sealed, call_id)
            self._gatherer.end_watch(call_id, result)
            if run_id is not None:
                self._listener.hear_result(run_id, call_id, result)
            else:
                # One that nobody waits for any more; or its run is another's by now.
                self._listener.hear_stray(run_of(call_id))
        elif kind == b"p" and run_id is not None:
            self._listener.hear_news(run_id, call_id, self._seal.open_progress(sealed, call_id))
        elif kind == b"n" and run_id is not None:
            self._listener.hear_news(run_id, call_id, open_news(self._seal, sealed, call_id))

    async def _sweep_forever(self) -> None:
        while not self._closing:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._gatherer.look_up_due()
                for run_id in self._gatherer.due(time.time()):
                    self._listener.notify(run_id)
                await self._gatherer.drop_forgotten()  # last: a server that refuses writes can still be read
            except COMMAND_FAILED as error:
                log.warning("results_unreadable", error=str(error))


def _ms_of(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])


def _after(entry_id: bytes) -> str:
    milliseconds, _, sequence = entry_id.decode().partition("-")
    return f"{milliseconds}-{int(sequence) + 1}"
