"""Interceptors that say no, or not yet: permission, a time limit, a limit on calls at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import InvalidTool
from toolfleet.interceptors.protocol import Proceed, ToolInvocation
from toolfleet.misspelt import exact


@exact()
class ToolPermission:
    """Lets a call through, or tells the model why not.

    `allow`: the only tools that may run (None: all). `deny`: tools that may not, with the reason. `check` looks at the
    call itself, its context for example, and returns None or the reason against it.
    """

    def __init__(
        self,
        *,
        allow: Collection[str] | None = None,
        deny: Mapping[str, str] | None = None,
        check: Callable[[ToolInvocation], str | None] | None = None,
    ) -> None:
        if isinstance(allow, str):
            raise InvalidTool(f"Permission(allow={allow!r}): pass a collection of names")
        self._allow = None if allow is None else frozenset(allow)
        self._deny = dict(deny or {})
        self._check = check

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the result, or Failed(denied) with the reason."""
        reason = self._reason_against(call)
        if reason is None:
            return await proceed(call)
        return Failed(kind=FailureKind.DENIED, message=f"{call.tool} was not allowed: {reason}")

    def _reason_against(self, call: ToolInvocation) -> str | None:
        if call.tool in self._deny:
            return self._deny[call.tool] or "it is denied on this worker"
        if self._allow is not None and call.tool not in self._allow:
            return "it is not among the tools that this worker may run"
        return self._check(call) if self._check else None


@exact()
class TimeLimit:
    """Ends what takes longer than `limit_s`, and tells the model.

    A blocking tool on a thread is told through `ctx.cancelled`; on prefork only `@tool(timeout_s=…)` stops one.
    """

    def __init__(self, limit_s: float) -> None:
        if not limit_s > 0:
            raise InvalidTool(f"TimeLimit({limit_s:g}) would end every call; give it more than 0 seconds")
        self._limit_s = limit_s

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the result, or Failed(timed_out)."""
        clock = asyncio.timeout(self._limit_s)
        try:
            async with clock:
                return await proceed(call)
        except TimeoutError:
            if not clock.expired():
                raise
        message = f"{call.tool} did not finish within {self._limit_s:.3g} s and was stopped."
        return Failed(kind=FailureKind.TIMED_OUT, message=message)


@exact()
class ConcurrencyLimit:
    """At most `calls` of its tools at a time in this worker process; the others wait, their deadline included."""

    def __init__(self, calls: int) -> None:
        if calls < 1:
            raise InvalidTool(f"ConcurrencyLimit({calls}) would let no call through")
        self._calls = calls
        # A worker of threads has a loop for each; a semaphore belongs to one.
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the result, once there was room."""
        room = self._rooms.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._calls))
        async with room:
            return await proceed(call)
