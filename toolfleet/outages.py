"""Waiting out a Redis, or a broker, that is away: what is owed is tried again until it is done.

Each try does the same again, also where an earlier one was done and only its reply was lost: what is given here must do
no harm when it is done twice. It takes no arguments, so that none stands in the log of a retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import stamina
import stamina.instrumentation

from toolfleet.errors import StoreUnreachable
from toolfleet.redis_clients import COMMAND_FAILED

T = TypeVar("T")
Passing = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The errors after which it is worth trying again."""

WAIT_MAX_S: Final = 2.0
"""Between two tries: so late is a Redis noticed that is back."""

# It would load them at the first retry, when there may be no file descriptor left to read a module with.
stamina.instrumentation.get_on_retry_hooks()

_ALWAYS: Final = stamina.RetryingCaller(attempts=None, timeout=None, wait_max=WAIT_MAX_S).on(COMMAND_FAILED)
_ALWAYS_ASYNC: Final = stamina.AsyncRetryingCaller(attempts=None, timeout=None, wait_max=WAIT_MAX_S).on(COMMAND_FAILED)


async def until_redis_is_back(act: Callable[[], Awaitable[T]]) -> T:
    """Do it, however long Redis is away or whatever it answers."""
    try:
        return await act()  # mostly enough, and costs none of what a retry does
    except COMMAND_FAILED:
        return await _ALWAYS_ASYNC(act)


def until_redis_is_back_blocking(act: Callable[[], T]) -> T:
    """The same without an event loop."""
    try:
        return act()
    except COMMAND_FAILED:
        return _ALWAYS(act)


async def while_it_may_be_away(act: Callable[[], Awaitable[T]], *, for_s: float, on: Passing = StoreUnreachable) -> T:
    """Do it, trying again for so many seconds; then raises the last error. `on` says which errors may pass."""
    try:
        return await act()  # mostly enough, as above
    except Exception as error:
        if not _may_pass(error, on):
            raise
    return await stamina.AsyncRetryingCaller(attempts=None, timeout=for_s, wait_max=WAIT_MAX_S)(on, act)


def _may_pass(error: Exception, on: Passing) -> bool:
    return isinstance(error, on) if isinstance(on, (type, tuple)) else on(error)
