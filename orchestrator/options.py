"""Whether what a caller asks of a run or a call can be meant. Pure; says which option is wrong and what is right."""

from __future__ import annotations

import math

from toolfleet.errors import CallerError


class InvalidOption(CallerError):
    """An option of a run or a call has a value that cannot be meant."""


def check_options(
    *,
    slow: str = "wait",
    patience_s: float | None = None,
    timeout_s: float | None = None,
    max_turns: int | None = None,
    keep_s: float | None = None,
) -> None:
    """Raises InvalidOption for the first one that is wrong."""
    if slow not in {"wait", "handle"}:
        raise InvalidOption(f'slow is "wait" or "handle", not {slow!r}')
    if patience_s is not None and not patience_s >= 0:
        raise InvalidOption(f"patience_s must not be negative, but is {patience_s:g}; 0 makes every call a handle")
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidOption(f"timeout_s of {timeout_s:g} is a deadline in the past; leave it out for none")
    if timeout_s is not None and math.isinf(timeout_s):
        raise InvalidOption("timeout_s must be a number of seconds; leave it out for no deadline")
    if max_turns is not None and max_turns < 1:
        raise InvalidOption(f"max_turns must be at least 1, but is {max_turns}; leave it out for the setting's")
    if keep_s is not None and not keep_s > 0:
        raise InvalidOption(f"keep_s must be more than 0, but is {keep_s:g}; `delete` forgets a run at once")
