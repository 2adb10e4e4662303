"""What running tools yield, to whoever looks on: batched, in order, a few times a second, for all calls together.

May be told from any thread; never blocks a tool and never fails it. What waits of a call is bounded: pieces that find
no room are not told of, which their numbers show. The result has all of them.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, cast

import redis.asyncio
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolfleet.call_news import FIELD, Yields, close_news
from toolfleet.context import Context
from toolfleet.keys import REPLIES_MAX, REPLIES_TTL_S, Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.strict_json import encodable, encodable_value
from toolfleet.supervision import run_errand
from toolfleet.wire import Seal
from toolfleet.workers.delivery.newest import NewestOfEach, SendingLoop
from toolfleet.workers.delivery.progress import INTERVAL_S
from toolfleet.workers.delivery.questions import attempt_of

log = FactLog("toolfleet.workers")

WAITING_MAX: Final = 65_536
"""Characters of one call that wait to be told of."""


LAST_WITHIN_S: Final = 1.0
"""How long the end of a call waits for its last pieces to be told of."""


@dataclass(slots=True)
class _Waiting:
    """What was yielded since the last time it was told of: pieces one behind the other."""

    attempt: int
    tries: int
    first: int
    voids: bool = False
    pieces: list[Any] = field(default_factory=list)
    chars: int = 0
    is_full: bool = False

    def add(self, piece: Any, chars: int) -> None:
        self.is_full = self.is_full or self.chars + chars > WAITING_MAX
        if not self.is_full:
            self.pieces.append(piece)
            self.chars += chars

    def news(self) -> Yields:
        are_texts = all(isinstance(piece, str) for piece in self.pieces)
        return Yields(
            attempt=self.attempt,
            tries=self.tries,
            first=self.first,
            count=len(self.pieces),
            text="".join(self.pieces) if are_texts else "",
            values=[] if are_texts else self.pieces,
            voids=self.voids,
        )


class Pieces:
    """Tells of what the tools of one worker yield, from one event loop."""

    def __init__(self, loop: SendingLoop, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        """`client` belongs to `loop`, which no tool may block."""
        self._client = client
        self._keys = keys
        self._seal = seal
        self._adding = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._on_the_way: frozenset[str] = frozenset()
        """The calls of which something is being told just now."""
        self._telling = asyncio.Lock()
        self._loop = loop
        self._newest: NewestOfEach[Context] = NewestOfEach(loop, self._send, is_owed=False)

    def tell(self, context: Context, number: int, piece: Any) -> None:
        """Tell of the piece with this number; with -1, that they begin, anew where the call had begun before."""
        call_id = context.call_id
        if number < 0:
            if not attempt_of(context).delivery.is_new or context.tries > 1:
                with self._adding:
                    self._waiting[call_id] = _Waiting(context.attempt, context.tries, 0, voids=True)
                self._newest.put(call_id, context)
            return
        shown, chars = _shown(piece)
        with self._adding:
            waiting = self._waiting.get(call_id)
            if waiting is None:
                waiting = self._waiting[call_id] = _Waiting(context.attempt, context.tries, number)
            waiting.add(shown, chars)
        self._newest.put(call_id, context)

    async def end(self, context: Context) -> None:
        """Return when what was yielded is told of, before its sum is, or when that takes too long."""
        with self._adding:
            is_told = context.call_id not in self._waiting and context.call_id not in self._on_the_way
        if not is_told:
            ended: Future[None] = Future()
            self._loop.call_soon_threadsafe(lambda: run_errand("pieces", self._send_last(context, ended)))
            await asyncio.wrap_future(ended)

    async def _send_last(self, context: Context, ended: Future[None]) -> None:
        try:
            async with asyncio.timeout(LAST_WITHIN_S):
                await self._tell_of({context.call_id: context})
        except (TimeoutError, *COMMAND_FAILED) as error:
            log.info("pieces_not_told", call_id=context.call_id, error=str(error))
        finally:
            if not ended.cancelled():
                ended.set_result(None)

    async def _send(self, newest: dict[str, Context]) -> None:
        try:
            await self._tell_of(newest)
        finally:
            await asyncio.sleep(INTERVAL_S)  # what is yielded meanwhile goes together

    async def _tell_of(self, yielding: dict[str, Context]) -> None:
        """Return when all that these calls have yielded is told of, also what was on its way before."""
        async with self._telling:
            with self._adding:
                taken = {call_id: self._waiting.pop(call_id, None) for call_id in yielding}
                self._on_the_way = frozenset(taken)
            try:
                await self._tell(taken, yielding)
            finally:
                self._on_the_way = frozenset()

    async def _tell(self, taken: dict[str, _Waiting | None], yielding: dict[str, Context]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call_id, waiting in taken.items():
            if waiting is not None:
                replies = self._keys.replies(attempt_of(yielding[call_id]).call.reply_to)
                told: dict[Any, Any] = {"c": call_id, FIELD: close_news(self._seal, waiting.news(), call_id)}
                pipeline.xadd(replies, told, maxlen=REPLIES_MAX, approximate=True)
                pipeline.expire(replies, REPLIES_TTL_S)
        await pipeline.execute()


def _shown(piece: Any) -> tuple[Any, int]:
    """Return a piece as it is told of, and how long that is about; what has no JSON form fails with the result."""
    if isinstance(piece, str):
        text = encodable(str.__str__(piece))
        return text, len(text)
    try:
        value = cast("Any", encodable_value(to_jsonable_python(piece, inf_nan_mode="null")))
    except (PydanticSerializationError, ValueError, RecursionError):
        return None, 4
    return value, len(repr(value))
