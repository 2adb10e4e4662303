"""Results of read-only tools, given again to whoever asks the same within a while."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final, Protocol

import orjson
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolfleet import masks
from toolfleet.calls import Effect, Returned
from toolfleet.errors import InvalidTool
from toolfleet.interceptors.protocol import Proceed, ToolInvocation
from toolfleet.misspelt import exact

MAX_ENTRIES: Final = 10_000
"""Results that one process keeps in memory."""


class ResultStore(Protocol):
    """Where results are kept: `MemoryStore`, or for a whole fleet `RedisStore`."""

    async def get(self, digest: str) -> Returned | None:
        """Return the result under this digest, unless its time is over."""

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result for a while."""


@exact()
class MemoryStore:
    """Keeps results in this process; each worker process has its own."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._kept: OrderedDict[str, tuple[float, Returned]] = OrderedDict()

    async def get(self, digest: str) -> Returned | None:
        """Return the result, unless its time is over or too many came after it."""
        until, result = self._kept.get(digest, (0.0, None))
        return result if time.monotonic() < until else None

    async def put(self, digest: str, result: Returned, ttl_s: float) -> None:
        """Keep a result; the oldest one goes when there is no room."""
        self._kept.pop(digest, None)
        self._kept[digest] = time.monotonic() + ttl_s, result
        if len(self._kept) > self._max_entries:
            self._kept.popitem(last=False)


@exact()
class Cache:
    """Gives a result again for `ttl_s` when a read-only tool is called with the same arguments.

    Each tenant has results of its own. `context` names what else must be the same in the caller's context, "city" for
    example; by default nothing is, so name whatever a tool of yours looks at. With `by_subject` each subject has its
    own, too: for tools whose answer depends on who asks. Tools that have an effect, or take secrets, are called
    every time. `attributes["cached"]` tells the caller. Failures, and results that change the run's state, are not
    kept.
    """

    def __init__(
        self, ttl_s: float, *, context: Collection[str] = (), by_subject: bool = False, store: ResultStore | None = None
    ) -> None:
        if not ttl_s > 0:
            raise InvalidTool(f"Cache(ttl_s={ttl_s:g}) would keep nothing")
        if isinstance(context, str):
            raise InvalidTool(f"Cache(context={context!r}): pass a collection of names")
        self._ttl_s = ttl_s
        self._context = tuple(sorted(context))
        self._by_subject = by_subject
        self._store = store or MemoryStore()

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the kept result, or a new one."""
        digest = self._digest(call)
        if digest is None:
            return await proceed(call)
        kept = await self._store.get(digest)
        if kept is not None:
            call.attributes["cached"] = True
            return kept
        result = await proceed(call)
        if isinstance(result, Returned) and not result.state:
            await self._store.put(digest, result, self._ttl_s)
        return result

    def _digest(self, call: ToolInvocation) -> str | None:
        """What stands for the question; None when it must be asked anew. One digest for one question, on any worker."""
        if call.spec.effect is not Effect.READ_ONLY or masks.has_secrets(call.spec.input_schema):
            return None
        seen = {name: call.context.context.get(name) for name in self._context}
        try:
            who = [call.context.tenant, call.context.subject if self._by_subject else ""]
            asked = to_jsonable_python([call.tool, dict(call.arguments), seen, who])
            text = orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError):
            return None
        return hashlib.sha256(text).hexdigest()
