"""What tools log while they run, into Redis: kept by call and attempt, in few commands, and the newest only.

A call that logs nothing costs nothing here: there is a handler of the standard library's logging, and what it is given
by a task of a call is that call's. Lines wait for a moment, so that those of all calls go together, and for no longer
than until their attempt ends. No tool waits for them or fails by them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.call_log import close_part, encoded_line, rank_of
from toolfleet.calls import ToolCall
from toolfleet.logs import FactLog
from toolfleet.masks import secret_values
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.log_handler import listen, short, text_of
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.newest import SendingLoop

log = FactLog("toolfleet.workers")

EVERY_S: Final = 1.0
"""How often what waits is written: so much at most is lost with a worker."""

END_WITHIN_S: Final = 2.0
"""How long the end of an attempt waits for its last lines to be written, where Redis is slow."""

MAX_BATCH: Final = 100
"""Calls whose lines are written at once."""

MAX_WAITING: Final = 2000
"""Calls whose lines wait at most, while Redis is away; those that have waited longest are dropped."""

PART_LINES: Final = 20
PART_BYTES: Final = 2048
"""Of so many lines, or bytes, a part is made, as the oldest parts are dropped as a whole."""

KEEP: Final = lua(__package__, "keep_log")

NAME_CHARS: Final = 100


class _Waiting:
    """The lines of one attempt that are not written yet."""

    def __init__(self, delivery: Delivery, call: ToolCall) -> None:
        self.delivery = delivery
        self.call = call
        self.lines: deque[bytes] = deque()
        self.dropped = 0
        self._size_bytes = 0

    def add(self, line: bytes, settings: Settings) -> None:
        """Add a line; the oldest go when there are too many."""
        self.lines.append(line)
        self._size_bytes += len(line)
        most_lines, most_bytes = settings.call_log_lines, settings.call_log_bytes
        while len(self.lines) > 1 and (len(self.lines) > most_lines or self._size_bytes > most_bytes):
            self._size_bytes -= len(self.lines.popleft())
            self.dropped += 1

    def put_before(self, later: _Waiting, settings: Settings) -> None:
        """Take the lines that came meanwhile behind these."""
        for line in later.lines:
            self.add(line, settings)
        self.dropped += later.dropped

    def parts(self) -> Iterator[list[bytes]]:
        """Yield the lines in the portions that are written."""
        part: list[bytes] = []
        for line in self.lines:
            if part and (len(part) == PART_LINES or sum(map(len, part)) + len(line) > PART_BYTES):
                yield part
                part = []
            part.append(line)
        if part:
            yield part


_Name = tuple[str, float, int]
"""What tells attempts apart."""


class CallLogs:
    """Keeps what the tools of one event loop log."""

    def __init__(
        self,
        loop: SendingLoop,
        client: redis.asyncio.Redis,
        settings: Settings,
        seal: Seal,
        tools: Mapping[str, Tool[..., Any]],
    ) -> None:
        """`client` belongs to `loop`, which no tool may block. From here on this process listens to what is logged."""
        self._loop = loop
        self._settings = settings
        self._seal = seal
        self._tools = tools
        self._script = client.register_script(KEEP)
        self._waiting: dict[_Name, _Waiting] = {}
        self._changing = threading.Lock()
        self._is_due = False
        self._writes: Batcher[_Name, None] = Batcher(self._write, max_batch=MAX_BATCH)
        listen(settings.call_log_level)

    @property
    def is_any_waiting(self) -> bool:
        """Whether any line waits to be written."""
        return bool(self._waiting)

    def keep(self, delivery: Delivery, call: ToolCall, record: logging.LogRecord) -> None:
        """Keep a line of an attempt. May be called on any thread."""
        line = self._line(call, record)
        name = _name_of(delivery, call)
        with self._changing:
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = _Waiting(delivery, call)
                if len(self._waiting) > MAX_WAITING:
                    del self._waiting[next(iter(self._waiting))]
            waiting.add(line, self._settings)
            is_due, self._is_due = self._is_due, True
        if not is_due:
            try:
                self._loop.call_soon_threadsafe(self._write_later)
            except OSError:  # no file descriptor for a loop: the next line tries again, and so does the attempt's end
                self._is_due = False

    async def end(self, delivery: Delivery, call: ToolCall) -> None:
        """Write what is left of an attempt that has ended, before its call is settled. No cancel stops this."""
        name = _name_of(delivery, call)
        if name not in self._waiting:
            return
        written: Future[None] = Future()
        try:
            self._loop.call_soon_threadsafe(self._write_now, name, written)
        except OSError:  # no file descriptor for a loop: the call's result matters more
            return
        waits = asyncio.wrap_future(written)
        gives_up_s = time.monotonic() + END_WITHIN_S
        while not waits.done() and (left_s := gives_up_s - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([waits], timeout=left_s)

    def _line(self, call: ToolCall, record: logging.LogRecord) -> bytes:
        tool = self._tools.get(call.tool)
        secrets = secret_values(call.arguments, tool.spec.input_schema) if tool else ()
        level, logger = short(record.levelname).lower(), short(record.name)
        return encoded_line(record.created, level, logger, text_of(record, secrets))

    # --- on the loop that sends -------------------------------------------------------------------------------------

    def _write_later(self) -> None:
        asyncio.get_running_loop().call_later(EVERY_S, self._write_all)

    def _write_all(self) -> None:
        with self._changing:
            self._is_due = False
            names = list(self._waiting)
        for name in names:
            self._writes.put(name)

    def _write_now(self, name: _Name, written: Future[None]) -> None:
        writing = self._writes.add(name)
        writing.add_done_callback(lambda _: written.set_result(None))

    async def _write(self, names: Sequence[_Name]) -> Sequence[None]:
        with self._changing:
            taken = {name: waiting for name in names if (waiting := self._waiting.pop(name, None)) is not None}
        arguments = [argument for waiting in taken.values() for argument in self._arguments(waiting)]
        try:
            if arguments:
                settings = self._settings
                await self._script(args=[settings.call_log_lines, settings.call_log_bytes, *arguments])
        except asyncio.CancelledError:
            self._put_back(taken)
            raise
        except COMMAND_FAILED as error:
            log.info("call_logs_not_written", calls=len(taken), error=str(error))
            self._put_back(taken)
        return [None] * len(names)

    def _put_back(self, taken: Mapping[_Name, _Waiting]) -> None:
        with self._changing:
            for name, waiting in taken.items():
                if (later := self._waiting.get(name)) is not None:
                    waiting.put_before(later, self._settings)
                if later is not None or len(self._waiting) < MAX_WAITING:
                    self._waiting[name] = waiting
            is_due, self._is_due = self._is_due, True
        if not is_due:
            self._write_later()

    def _arguments(self, waiting: _Waiting) -> Iterator[str | bytes | float]:
        delivery, call = waiting.delivery, waiting.call
        key = self._settings.keys.call_log(call.call_id)
        began_unix_s = round(delivery.came_unix_s, 3)
        about = {"attempt": delivery.deliveries, "worker": delivery.worker, "began_unix_s": began_unix_s}
        rank, now_s = rank_of(delivery.deliveries, began_unix_s), time.time()
        kept_s = max(0.0, call.deadline_unix_s - now_s) + self._settings.keep_call_logs_s
        made_us = int(now_s * 1e6)
        parts = [
            close_part(self._seal, key, about, part, made_us + at)  # told apart, and in their order
            for at, part in enumerate(waiting.parts())
        ]
        yield from (key, int(kept_s), waiting.dropped, len(parts))
        yield from chain.from_iterable((rank, part) for part in parts)


def _name_of(delivery: Delivery, call: ToolCall) -> _Name:
    return call.call_id, delivery.came_unix_s, delivery.deliveries
