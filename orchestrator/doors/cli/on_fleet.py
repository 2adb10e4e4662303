"""The one way in which a command does its work: on this user's fleet, with an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toolfleet.local.fleet import redis_or_embedded
from toolfleet.settings import Settings

T = TypeVar("T")


def on_fleet(work: Callable[[Settings], Coroutine[Any, Any, T]]) -> T:
    """Return what `work` makes of the settings of this user's fleet; its server runs for so long.

    Raises what `redis_or_embedded` raises, and what `work` raises.
    """
    with redis_or_embedded() as settings:
        return asyncio.run(work(settings))
