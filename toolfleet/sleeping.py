"""What a running tool says when it wants to go on later: records, and how one sleep is told from the next. Pure.

A sleep is known by where its tool was: by the newest checkpoint, and its number since then. So a tool that begins again
from that checkpoint has slept already, and one that has made another sleeps anew. Must not know Redis.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from toolfleet.calls import Record
from toolfleet.errors import BadSleep

if TYPE_CHECKING:
    from toolfleet.context import Context

MAX_SLEEPS: Final = 1000
"""A call that sleeps more often than this goes on for ever."""

IN_TIME_S: Final = 1.0
"""What a tool has left, at least, when it wakes."""

_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Sleep(Record):
    """A sleep as it is stored: until when."""

    call_id: str
    tool: str
    key: str
    expires_unix_s: float
    """When the call goes on."""


async def sleep(context: Context, duration: float | timedelta, key: str) -> None:
    """Return when the time has passed: what `Context.sleep` does."""
    if (wanted := _wanted(context, duration, key)) is not None:
        await asyncio.wrap_future(context.put_question(context, wanted, False))


def sleep_blocking(context: Context, duration: float | timedelta, key: str) -> None:
    """The same for a tool that blocks its thread or its process: what `Context.sleep_blocking` does."""
    if (wanted := _wanted(context, duration, key)) is not None:
        context.put_question(context, wanted, True).result()


def must_end_in_time(context: Context, sleep: Sleep) -> None:
    """Raise BadSleep for one that would begin now and end after its call's deadline."""
    if sleep.expires_unix_s > context.deadline_unix_s - IN_TIME_S:
        seconds = sleep.expires_unix_s - time.time()
        raise BadSleep(
            f"{context.tool} sleeps for {seconds:.3g} s, and its call has {max(0.0, context.time_left_s):.3g} s left: "
            "let the tool be long_running, or give its run a longer timeout_s"
        )


def _wanted(context: Context, duration: float | timedelta, key: str) -> Sleep | None:
    """Return a sleep of a call, None for one of no time. Raises BadSleep."""
    given: object = duration.total_seconds() if isinstance(duration, timedelta) else duration
    seconds = float(given) if isinstance(given, int | float) and not isinstance(given, bool) else -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise BadSleep(f"{context.tool} sleeps for {duration!r:.100}: give seconds, or a timedelta")
    if key and not _KEY.fullmatch(key):
        raise BadSleep(f"{context.tool} sleeps under {key!r:.100}: a key is up to 64 of a-z, A-Z, 0-9, _ and -")
    place = key or _place(context)
    if seconds == 0:
        return None
    wakes_unix_s = time.time() + seconds
    return Sleep(call_id=context.call_id, tool=context.tool, key=place, expires_unix_s=wakes_unix_s)


def _place(context: Context) -> str:
    """Return where a tool is: what a repetition of the same attempt would be at, too."""
    at = hashlib.sha256(context.newest_checkpoint).hexdigest()[:16]
    number = context.sleeps[at] = context.sleeps.get(at, 0) + 1
    return f"{at}.{number}"
