"""Whether a version of a tool fails so much more often than another one that this can hardly be chance. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

CHANCE: Final = 1e-3
"""A version is taken back when one that fails as the other does would have as many failures less often than this."""

TIMES: Final = 2.0
"""And when it fails at least so many times as often: a tiny difference shows in many calls, and may be no harm."""


class Ends(NamedTuple):
    """How calls of one version have ended."""

    calls: int = 0
    failed: int = 0


def against(version: Ends, other: Ends) -> str:
    """Return why a version is to be taken back, "" where nothing speaks against it.

    The other's rate is smoothed (Laplace): of one that nobody has called yet it is one half.
    """
    rate = (other.failed + 1) / (other.calls + 2)
    if not version.calls or version.failed < TIMES * rate * version.calls:
        return ""
    chance = at_least(version.failed, version.calls, rate)
    if chance >= CHANCE:
        return ""
    return (
        f"{version.failed} of {version.calls} calls have failed, where {other.failed} of {other.calls} do of the other "
        f"version: by chance less often than 1 in {min(int(1 / CHANCE) if chance <= 0 else int(1 / chance), 10**9)}"
    )


def at_least(successes: int, trials: int, rate: float) -> float:
    """Return how likely at least so many of so many are, each at this rate (upper tail of the binomial)."""
    if successes <= 0:
        return 1.0
    terms = (
        math.lgamma(trials + 1)
        - math.lgamma(each + 1)
        - math.lgamma(trials - each + 1)
        + each * math.log(rate)
        + (trials - each) * math.log1p(-rate)
        for each in range(successes, min(trials, successes + 10_000) + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))
