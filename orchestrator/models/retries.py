"""Asks again when a fault may pass, without taking back what was handed out.

Knows attempts and waits; it must not know HTTP or a wire format. A loop of its own, because the retry libraries wrap a
block or a function, and a generator that yields inside such a block stays tied to the exception they keep.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import ModelUnreachable, TryAgain
from toolfleet.orchestrator.models.http import HttpOptions
from toolfleet.orchestrator.models.protocol import ModelEvent, Restarted

# A Retry-After is kept a little late: thousands of conversations hear the same one, and must not come all at once.
LATEST = 1.2

log = FactLog(__name__)


async def with_retries(
    ask: Callable[[], AsyncGenerator[Sequence[ModelEvent], None]], options: HttpOptions
) -> AsyncGenerator[Sequence[ModelEvent], None]:
    """Yield the events of the first attempt that does not end in `TryAgain`, those together that came together.

    A model asked twice does not say the same thing twice, so a second attempt's deltas cannot be spliced onto the
    first's. Instead `Restarted` tells the reader to forget what it has shown. Calls need no such event: an attempt
    that has handed one out ends normally (see `ReplyAssembly.interrupted`) and never comes back here.

    Raises ModelUnreachable when attempts or time are used up, or when the server asks for more patience than
    `options.max_wait_s`.
    """
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + options.retry_for_s
    shown = False
    for attempt in range(1, options.attempts + 1):
        if shown:
            yield (Restarted(attempt),)
            shown = False
        try:
            async with aclosing(ask()) as heard:
                async for events in heard:
                    shown = True
                    yield events
        except TryAgain as fault:
            wait_s = wait_before_next_s(attempt, fault.said.retry_after_s, options, random.random())
            if wait_s is None or clock() + wait_s > give_up_at:
                raise ModelUnreachable(_with_attempts(fault, attempt), fault.said) from fault
            log.warning("model.asked_again", attempt=attempt, wait_s=round(wait_s, 3), error=str(fault))
        else:
            return
        await asyncio.sleep(wait_s)


def wait_before_next_s(attempt: int, retry_after_s: float | None, options: HttpOptions, chance: float) -> float | None:
    """Return the seconds until the attempt after this one (counted from 1); None if there is to be none.

    The server's own wish if it has one, else doubling from `first_wait_s` to `max_wait_s`. `chance` (0 to 1) spreads
    the waits: over the upper half of a doubled one, over a fifth after a wish.
    """
    if attempt >= options.attempts:
        return None
    if retry_after_s is not None:
        spread = 1 + (LATEST - 1) * chance
        return retry_after_s * spread if retry_after_s <= options.max_wait_s else None
    doubled = min(options.max_wait_s, options.first_wait_s * 2.0 ** (attempt - 1))
    return doubled * (1 + chance) / 2


def _with_attempts(fault: TryAgain, attempts: int) -> str:
    return f"{fault} (asked {attempts} times)" if attempts > 1 else str(fault)
