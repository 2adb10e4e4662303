"""The events of runs as they are stored, for any number of listeners: one read for all the runs that are listened to.

Reads the runs' streams, whoever works on them; knows nothing of HTTP. Nothing is lost or doubled: a listener reads what
is stored by itself, and of what the reader brings takes only what is newer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Self, cast
from weakref import WeakValueDictionary

import orjson

from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.shared_reads import SharedReads
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.chain import FIRST
from toolfleet.orchestrator.store.packed import next_id, order_of, unpacked
from toolfleet.redis_clients import COMMAND_FAILED, AsyncClient, StreamEntry
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.supervision import Kept, Supervisor

log = FactLog("toolfleet.http")

BLOCK_MS: Final = 2000
READ_COUNT: Final = 10

PAGE_BYTES: Final = 256 * 1024
MAX_PAGE: Final = 100
"""How much of a run one listener has read and not sent: a page of small events, or one large one."""

MAX_WAITING_BYTES: Final = 1024 * 1024
"""How much of what happens waits for one listener; one who is further behind reads the rest from the store."""

MAX_READING: Final = 16
"""Pages, or ends of runs, that are read at once: a thousand listeners may come together, and others wait meanwhile."""

LOOK_FOR_GONE_EVERY_S: Final = 5.0
RETRY_S: Final = 0.5
WAKE_EVERY_S: Final = 0.01

ENDS: Final = frozenset({"model_replied", "run_stopped", "calls_back", "calls_handed_over"})
"""The events with which a run may end."""

ENDED: Final = frozenset(state.value.encode() for state in State if state.is_terminal)

KIND: Final = re.compile(r"[a-z_]{1,64}")

ENTRY_ID: Final = re.compile(r"\d{1,18}-\d{1,18}")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Frame:
    """One event as it goes to clients; `id` is empty for one that is not stored, `data` for an entry that is none."""

    id: str
    data: bytes
    may_end: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """What frames of one run are sorted by."""
        return order_of(self.id)

    @property
    def event(self) -> bytes:
        """The event itself, as JSON."""
        return self.data.partition(b"\ndata: ")[2]


NOTHING: Final = Frame("", b": nothing\n\n")
"""What only wakes a listener: whoever asks for it looks elsewhere then."""


class Behind(Exception):
    """A listener has not taken its events for so long that it is dropped."""


class EventListener:
    """One client that follows one run: the events that it has not taken yet."""

    def __init__(self, max_frames: int) -> None:
        self._waiting: asyncio.Queue[Frame | None] = asyncio.Queue(max_frames)
        self._waiting_bytes = 0
        self._is_behind = False
        self._has_missed_live = False

    def hear(self, frame: Frame | None) -> None:
        """Give it an event, or None for the end. One that is full hears nothing more, and is told why."""
        size = 0 if frame is None else len(frame.data)
        has_room = not self._waiting_bytes or self._waiting_bytes + size <= MAX_WAITING_BYTES
        if has_room and not self._is_behind and not self._waiting.full():
            self._waiting_bytes += size
            self._waiting.put_nowait(frame)
        else:
            self._is_behind = True
            self._has_missed_live |= frame is not None and not frame.id

    def wake(self) -> None:
        """Let `next` return with a frame that says nothing, if nothing else waits."""
        if self._waiting.empty() and not self._is_behind:
            self._waiting.put_nowait(NOTHING)

    async def next(self) -> Frame | None:
        """Return the next event, None at the end. Raises Behind."""
        if self._is_behind:
            raise Behind
        frame = await self._waiting.get()
        self._waiting_bytes -= 0 if frame is None else len(frame.data)
        return frame

    def start_over(self) -> None:
        """Forget what waits, which is read from the store instead. Raises Behind where it is not stored."""
        if self._has_missed_live:
            raise Behind
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting_bytes = 0
        self._is_behind = False


@dataclass(slots=True)
class _Watched:
    """One run that somebody listens to."""

    last_id: str
    listeners: set[EventListener] = field(default_factory=set)

    def hear(self, frame: Frame | None) -> None:
        for listener in self.listeners:
            listener.hear(frame)


class Tail:
    """Follows runs. An async context manager: leaving it ends what its listeners hear."""

    def __init__(self, client: AsyncClient, settings: Settings, *, max_frames: int, supervisor: Supervisor) -> None:
        self._client = client
        self._supervisor = supervisor
        self._keys = settings.keys
        self._max_frames = max_frames
        self._watched: dict[str, _Watched] = {}
        self._frames: WeakValueDictionary[tuple[str, bytes], Frame] = WeakValueDictionary()
        self._stored = SharedReads(self._range, max_at_once=MAX_READING)
        self._ends = SharedReads(self._end, max_at_once=MAX_READING)
        self._is_wanted = asyncio.Event()
        self._is_stale = False
        """Whether the read under way lacks a run that somebody listens to by now."""
        self._reader_id: int | None = None
        self._looked_for_gone_s = time.monotonic()
        self._kept: list[Kept] = []

    async def __aenter__(self) -> Self:
        self._kept = [
            self._supervisor.keep("event_reader", self._read_forever),
            self._supervisor.keep("event_reader_waker", self._wake_when_stale),
        ]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*(kept.aclose() for kept in self._kept))
        for watched in self._watched.values():
            watched.hear(None)

    @property
    def runs(self) -> int:
        """How many runs are listened to now."""
        return len(self._watched)

    @property
    def listeners(self) -> int:
        """How many listeners there are now."""
        return sum(len(watched.listeners) for watched in self._watched.values())

    def listener(self) -> EventListener:
        """Make a listener, which may also be told of updates that are not stored."""
        return EventListener(self._max_frames)

    async def listen(
        self, run_id: str, *, after: str = FIRST, listener: EventListener | None = None
    ) -> AsyncGenerator[Frame, None]:
        """Yield the events of a run after an entry, stored and to come, until it has ended or was deleted.

        Raises StoreUnreachable, and Behind for a listener that is too slow.
        """
        async with aclosing(self._entries(run_id, after, listener)) as frames:
            async for frame in frames:
                if frame.data:
                    yield frame

    async def _entries(self, run_id: str, last_id: str, listener: EventListener | None) -> AsyncGenerator[Frame, None]:
        """The same with what is no event: after all that was read, readable or not, the run may have ended."""
        async for frame in self._pages(run_id, last_id):
            yield frame
            last_id = frame.id
        if listener is None and await self._is_over(run_id, last_id):
            return
        listener = listener or self.listener()
        self._watch(run_id, last_id, listener)
        try:
            is_current = False
            while True:
                if not is_current:
                    # Only now that news are heard: what came before that would be missed.
                    async for frame in self._pages(run_id, last_id):
                        yield frame
                        last_id = frame.id
                    if await self._is_over(run_id, last_id):
                        return
                    is_current = True
                try:
                    news = await listener.next()
                except Behind:
                    listener.start_over()
                    is_current = False
                    continue
                if news is None:
                    return
                if news.id and news.order <= order_of(last_id):
                    continue
                last_id = news.id or last_id
                yield news
        finally:
            self._unwatch(run_id, listener)

    # --- what is listened to ------------------------------------------------------------------------------------

    def _watch(self, run_id: str, last_id: str, listener: EventListener) -> None:
        watched = self._watched.get(run_id)
        if watched is None:
            watched = self._watched[run_id] = _Watched(last_id)
            self._is_stale = True
            self._is_wanted.set()
        watched.listeners.add(listener)

    def _unwatch(self, run_id: str, listener: EventListener) -> None:
        watched = self._watched.get(run_id)
        if watched is not None:
            watched.listeners.discard(listener)
            if not watched.listeners:
                del self._watched[run_id]

    # --- the reader ---------------------------------------------------------------------------------------------

    async def _read_forever(self) -> None:
        while True:
            try:
                async with self._client.client() as reader:
                    self._reader_id = await reader.client_id()
                    while True:
                        await self._is_wanted.wait()
                        await self._read_once(reader)
            except COMMAND_FAILED as error:
                log.warning("runs_unreadable", error=str(error))
                await asyncio.sleep(RETRY_S)
            finally:
                self._reader_id = None

    async def _read_once(self, reader: AsyncClient) -> None:
        self._is_stale = False
        if not self._watched:
            self._is_wanted.clear()
            return
        names = {self._keys.run(run_id): run_id for run_id in self._watched}
        streams = {name: self._watched[run_id].last_id for name, run_id in names.items()}
        # New runs may come while this waits: then it is woken (`_wake_when_stale`) and asks again.
        for name, entries in await reader.read_streams(streams, count=READ_COUNT, block_ms=BLOCK_MS):
            stream = name.decode()
            await self._tell(names[stream], unpacked(entries, since=next_id(streams[stream])))
        if time.monotonic() - self._looked_for_gone_s >= LOOK_FOR_GONE_EVERY_S:
            await self._look_for_gone()

    async def _tell(self, run_id: str, entries: list[StreamEntry]) -> None:
        watched = self._watched.get(run_id)
        if watched is None:
            return
        frames = self._frames_of(run_id, entries)
        for frame in frames:
            if frame.data:
                watched.hear(frame)
        watched.last_id = frames[-1].id
        if frames[-1].may_end and await self._is_over(run_id, watched.last_id):
            watched.hear(None)

    async def _look_for_gone(self) -> None:
        """End the listening to runs that were deleted or are kept no longer, of which their streams say nothing."""
        self._looked_for_gone_s = time.monotonic()
        run_ids = list(self._watched)
        pipeline = self._client.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.exists(self._keys.run(run_id))
        for run_id, is_there in zip(run_ids, await pipeline.execute(), strict=True):
            if not is_there and (watched := self._watched.get(run_id)):
                watched.hear(None)

    async def _wake_when_stale(self) -> None:
        """Interrupt the blocking read when it lacks a run; again, if it had not begun to block yet."""
        while True:
            await self._is_wanted.wait()
            while self._is_stale and self._reader_id is not None:
                try:
                    await self._client.client_unblock(self._reader_id)
                except COMMAND_FAILED:
                    break  # the reader will have noticed too
                await asyncio.sleep(WAKE_EVERY_S)
            await asyncio.sleep(WAKE_EVERY_S)

    # --- what is stored -----------------------------------------------------------------------------------------

    async def _pages(self, run_id: str, after: str) -> AsyncGenerator[Frame, None]:
        """Yield what is stored after an entry; only a page of it is in memory, once for all who listen to the run."""
        count = 1  # the first event of a run is its largest, as a rule
        while True:
            found = await self._stored.read((run_id, after, count))
            frames = self._frames_of(run_id, found)
            is_last = len(found) < count
            if frames:
                after = frames[-1].id
            largest = max((len(each) for _, fields in found for each in fields.values()), default=1)
            del found
            while frames:
                yield frames.pop(0)
            if is_last:
                return
            count = min(MAX_PAGE, max(1, PAGE_BYTES // max(1, largest)), 4 * count)

    def _frames_of(self, run_id: str, entries: Iterable[StreamEntry]) -> list[Frame]:
        """Make the frames of entries, once for all listeners. One that is no event has no data."""
        frames = []
        for entry_id, fields in entries:
            known = self._frames.get((run_id, entry_id))
            try:
                known = known or _frame(entry_id.decode(), fields[b"e"])
            except (LookupError, TypeError, ValueError) as error:
                skip("event", error, entry_id=entry_id.decode())
                known = Frame(entry_id.decode(), b"", may_end=True)
            self._frames[run_id, entry_id] = known
            frames.append(known)
        return frames

    async def _range(self, page: tuple[str, str, int]) -> list[StreamEntry]:
        run_id, after, count = page
        since = next_id(after)
        found = cast("list[StreamEntry]", await self._client.xrange(self._keys.run(run_id), min=since, count=count))
        return unpacked(found, since=since)

    async def _is_over(self, run_id: str, last_id: str) -> bool:
        """Return whether nothing comes after this entry: the run has ended with it, or is gone."""
        return await self._ends.read((run_id, last_id))

    async def _end(self, at: tuple[str, str]) -> bool:
        run_id, last_id = at
        # In one transaction: a run that is resumed has newer entries than its end.
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hget(self._keys.head(run_id), "state")
        pipeline.exists(self._keys.run(run_id))
        pipeline.xrange(self._keys.run(run_id), min=next_id(last_id), count=1)
        state, is_there, newer = await pipeline.execute()
        has_ended = state is None or state in ENDED
        return not is_there or (has_ended and not newer)


def event_bytes(kind: str, data: bytes, entry_id: str = "") -> bytes:
    """Return one server-sent event as bytes. `data` is JSON on one line."""
    id_line = b"id: %s\n" % entry_id.encode() if entry_id else b""
    return b"%sevent: %s\ndata: %s\n\n" % (id_line, kind.encode(), data)


def _frame(entry_id: str, event: bytes) -> Frame:
    """Make the frame of an event. Raises LookupError, TypeError or ValueError for what is none."""
    kind = orjson.loads(event)["type"]
    if not KIND.fullmatch(kind):
        raise ValueError("no kind of event")
    return Frame(entry_id, event_bytes(kind, _one_line(event), entry_id), may_end=kind in ENDS)


def _one_line(event: bytes) -> bytes:
    """Return JSON on one line, whoever wrote it: what follows a break would be taken for another event."""
    return orjson.dumps(orjson.loads(event)) if b"\n" in event or b"\r" in event else event
