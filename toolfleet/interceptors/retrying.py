"""Calls that fail and are tried again, on the worker that has them: `@tool(retries=…)`, and for any tools `Retry`.

Not to be confused with deliveries: those follow a lost worker, and `ctx.attempt` counts them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, Final

from toolfleet.errors import BadArguments, InvalidTool, RetryAfter, ToolError, UnconvertibleValue
from toolfleet.interceptors.protocol import Proceed, ToolInvocation
from toolfleet.misspelt import exact

log = logging.getLogger("toolfleet.interceptors")

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0

NEVER: Final = (BadArguments, RetryAfter, UnconvertibleValue)
"""Would end the same way again, says itself when it is worth it, or had the effect already."""


@exact()
class Retry:
    """Tries up to `retries` times more when the call raises one of `on`: any Exception but ToolError, if none is named.

    Waits longer each time, half of it at random. A wait that would outlast the call's deadline is not begun: the last
    error stands. `ctx.tries` counts, from 1.
    """

    def __init__(
        self,
        retries: int,
        on: type[BaseException] | tuple[type[BaseException], ...] = (),
        *,
        wait_s: float = FIRST_WAIT_S,
        max_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        if retries < 1 or not 0 <= wait_s <= max_wait_s:
            raise InvalidTool(f"Retry({retries}, wait_s={wait_s:g}, max_wait_s={max_wait_s:g}) can never try again")
        self._retries = retries
        self._on = on if isinstance(on, tuple) else (on,)
        self._wait_s = wait_s
        self._max_wait_s = max_wait_s

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the first result that is no error of `on`. Raises the last such error, or any other one at once."""
        context = call.context
        while True:
            try:
                return await proceed(call)
            except Exception as error:  # whatever is not worth another try goes on its way
                wait_s = self._wait_after(context.tries)
                if not self._is_worth_it(error, context.tries) or context.time_left_s <= wait_s:
                    raise
                log.warning(
                    "call_tried_again: %s",
                    type(error).__name__,  # not its text, which may hold a secret
                    extra={
                        "call_id": context.call_id,
                        "run_id": context.run_id,
                        "tries": context.tries,
                        "wait_s": wait_s,
                    },
                )
            await asyncio.sleep(wait_s)
            context.tries += 1
            context.questions = 0  # this try asks the same again, and is answered at once
            context.attributes["tries"] = context.tries

    def _is_worth_it(self, error: Exception, tries: int) -> bool:
        if tries > self._retries or isinstance(error, NEVER):
            return False
        return isinstance(error, self._on) if self._on else not isinstance(error, ToolError)

    def _wait_after(self, tries: int) -> float:
        # Half of it at random, so that all the calls that a fault has ended do not come back at once.
        longest_s: float = min(self._wait_s * 2.0 ** (tries - 1), self._max_wait_s)
        return longest_s * random.uniform(0.5, 1.0)
