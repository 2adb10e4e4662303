"""What is left of what a run may use up, once four fifths of it are used. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from toolfleet.calls import Record
from toolfleet.messages import UserMessage
from toolfleet.orchestrator.run.limits import cost_of

if TYPE_CHECKING:
    from toolfleet.orchestrator.run.value import Run

NEARLY: Final = 0.8

OWN: Final = "run"

Unit = Literal["usd", "tokens", "calls"]

THOUSANDS_FROM: Final = 10_000


class Left(Record):
    """What is left of a limit that is nearly used up; of one that is exceeded, nothing."""

    of: str
    """Whose limit it is: `run` for that of the run and its agents, or `tenant acme a day`."""
    unit: Unit
    left: float
    limit: float

    @property
    def name(self) -> str:
        """By what it is known whether it has been told."""
        return f"{self.of} {self.unit}"

    @property
    def told(self) -> str:
        """How much it is, rounded down, for people and models: `20k tokens`."""
        if self.unit == "usd":
            return "$" + f"{math.floor(round(self.left * 1e4, 3)) / 1e4:.4f}".rstrip("0").rstrip(".")
        many = int(self.left)
        said = f"{many // 1000}k" if self.unit == "tokens" and many >= THOUSANDS_FROM else str(many)
        return f"{said} {self.unit.removesuffix('s') if many == 1 else self.unit}"


def left_of(of: str, unit: Unit, used: float, limit: float | None) -> tuple[Left, ...]:
    """What is left, where that is to be told."""
    if limit is None or used < NEARLY * limit:
        return ()
    return (Left(of=of, unit=unit, left=max(0.0, limit - used), limit=limit),)


def own_left(run: Run) -> tuple[Left, ...]:
    """What is left of the run's own limits on tokens and cost, as far as its history knows."""
    limits = run.terms.limits
    if limits.tokens is None and limits.cost is None:
        return ()
    tokens = left_of(OWN, "tokens", run.usage.total_tokens, limits.tokens)
    return tokens + left_of(OWN, "usd", 0.0 if limits.cost is None else cost_of(run), limits.cost)


def least(lefts: Iterable[Left]) -> tuple[Left, ...]:
    """Of each limit what is least: others may have used of it what this run's history does not know."""
    by_name: dict[str, Left] = {}
    for each in lefts:
        if each.name not in by_name or each.left < by_name[each.name].left:
            by_name[each.name] = each
    return tuple(by_name.values())


def reminder(lefts: Sequence[Left]) -> UserMessage:
    """The line that a model reads that is to know."""
    whose = ", ".join(each.told if each.of == OWN else f"{each.told} for {each.of}" for each in lefts)
    return UserMessage(content=f"[{whose} left: come to an end before that is used up.]")


LONGEST_REMINDER: Final = UserMessage(content="x" * 1024)
"""No shorter than any reminder: what is held for a reply is held before it is known what is left."""
