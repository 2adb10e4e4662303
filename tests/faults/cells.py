"""The matrix of losses: what is lost, where a call runs, what a repeat of it would do, and how far it has come.

The cells are a product, less those that cannot be, each with its reason. Pure: no clock, no Redis, no processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from toolfleet.calls import Effect
from toolfleet.workers.pool_presets import ASYNCIO, KINDS, POOLS, PREFORK

CALLS_AT_A_TIME = len(Effect)
"""One of each effect stands in each pool."""


class Party(StrEnum):
    """Who is lost."""

    WORKER = "worker"
    SERVER = "server"
    ORCHESTRATOR = "orchestrator"


class Way(StrEnum):
    """What is meant by lost."""

    KILLED = "killed"
    REFUSED = "refused"
    FROZEN = "frozen"
    ROLLED_BACK = "rolled back"


class Stage(StrEnum):
    """How far a call has come when the loss comes."""

    HANDED_OUT = "handed out"
    """Its worker has it, and its tool has not begun."""
    BEGUN = "begun"
    """Its tool is at work: it has written that it began, and not that it is done."""
    DONE = "done"
    """Its tool has returned, and nobody has heard of it."""


@dataclass(frozen=True)
class Place:
    """Where a call runs: a queue, the kind of pool that serves it, and whether its tools are coroutines."""

    name: str
    kind: str
    is_coroutine: bool
    long_running: bool = False

    @property
    def shares_a_thread(self) -> bool:
        """Whether one standing call keeps every other one of its worker from going on."""
        return self.kind in {"asyncio", "solo"}

    @property
    def workers(self) -> int:
        return CALLS_AT_A_TIME if self.shares_a_thread else 1

    @property
    def options(self) -> tuple[str, ...]:
        """What a worker of it is told: never to hold a call that cannot stand where it is to stand."""
        return ("--kind", self.kind, "--concurrency", str(CALLS_AT_A_TIME // self.workers))


def places() -> dict[str, Place]:
    """Every preset, with coroutines and plain functions where it runs both, and each kind that is no preset's."""
    names = {implementation: kind for kind, implementation in KINDS.items()}
    found = [
        Place(name, names[preset.implementation], preset.implementation == ASYNCIO, long_running=name == "long")
        for name, preset in POOLS.items()
    ]
    found += [
        Place(f"{name}_on_threads", names[ASYNCIO], is_coroutine=False)
        for name, preset in POOLS.items()
        if preset.implementation == ASYNCIO
    ]
    taken = {place.kind for place in found}
    found += [Place(kind, kind, is_coroutine=False) for kind in KINDS if kind not in taken]
    return {place.name: place for place in found}


PLACES = places()


@dataclass(frozen=True)
class Loss:
    """One way of losing somebody, and what it may do to calls."""

    name: str
    what: str
    party: Party
    way: Way

    takes_a_child: bool = False
    """Only a process of a pool is lost, so there must be one."""

    may_repeat: bool = False
    """Whether whoever holds a call counts as lost: then one that may be repeated is, and any other may be in doubt."""

    forgets: bool = False
    """Whether the server forgets what it had acknowledged: then no more is promised than a truthful message."""


@dataclass(frozen=True)
class Cell:
    """One combination."""

    loss: str
    place: str
    effect: Effect
    stage: Stage

    def __str__(self) -> str:
        return f"{self.loss} / {self.place} / {self.effect} / {self.stage}"


def impossible(loss: Loss, place: Place) -> str:
    """Return why there is no such cell, or nothing."""
    if loss.takes_a_child and KINDS[place.kind] != PREFORK:
        return f"a pool of kind {place.kind} runs its calls in the worker itself: there is no child to lose"
    return ""


NOTHING_TO_ROLL_BACK = "keeps nothing of its own that could become older: what it knows is in the server"


def missing_ways(losses: Iterable[Loss]) -> dict[tuple[Party, Way], str]:
    """Return why a party is not lost in a way at all; nothing where it is lost in fewer than two."""
    found = [(loss.party, loss.way) for loss in losses]
    missing = {}
    for party, way in product(Party, Way):
        if way is Way.ROLLED_BACK and party is not Party.SERVER:
            missing[party, way] = f"{party} {NOTHING_TO_ROLL_BACK}"
        elif found.count((party, way)) < 2:  # two ways of every loss
            missing[party, way] = ""
    return missing


def all_cells(losses: Iterable[Loss]) -> tuple[list[Cell], dict[Cell, str]]:
    """Return the cells that there are, and those that cannot be, with the reason."""
    possible, cannot = [], {}
    for loss, place, effect, stage in product(losses, PLACES.values(), Effect, Stage):
        cell = Cell(loss.name, place.name, effect, stage)
        if reason := impossible(loss, place):
            cannot[cell] = reason
        else:
            possible.append(cell)
    return possible, cannot


def cells_of(loss: Loss, stage: Stage) -> list[Cell]:
    """Return the cells that one injection of a loss reaches."""
    return [cell for cell in all_cells([loss])[0] if cell.stage is stage]


def stages(first: int, times: int) -> list[Stage]:
    """Return the stages of so many injections, in turn."""
    every = list(Stage)
    return [every[(first + number) % len(every)] for number in range(times)]


def tool_of(place: Place, effect: Effect) -> str:
    """Return the name of the tool that stands for a place and an effect."""
    return f"{effect}_in_{place.name}"


@dataclass(frozen=True)
class Coverage:
    """What of the matrix was reached, and what not, each with why."""

    reached: Mapping[Cell, int]
    """How often a call stood exactly there when the loss came."""
    impossible: Mapping[Cell, str]
    never_reached: Sequence[Cell]
    """The loss was injected, and no call stood there."""
    not_chosen: Sequence[Cell]
    """Left to a longer form, or another day's sample."""
    no_such_way: Mapping[tuple[Party, Way], str]

    @property
    def possible(self) -> int:
        return len(self.reached) + len(self.never_reached) + len(self.not_chosen)

    def lines(self) -> list[str]:
        """What is to be said of it in words."""
        counts = {
            "never reached": self.never_reached,
            "not chosen": self.not_chosen,
            "impossible": self.impossible,
        }
        others = ", ".join(f"{len(cells)} {what}" for what, cells in counts.items())
        said = [f"matrix of losses: {len(self.reached)} of {self.possible} cells reached, {others}"]
        for reason in dict.fromkeys(self.impossible.values()):
            count = sum(each == reason for each in self.impossible.values())
            said.append(f"impossible: {reason} ({count} cells)")
        said += [f"impossible: {reason}" for reason in self.no_such_way.values() if reason]
        said += [f"never reached: {cell}" for cell in self.never_reached]
        unchosen: dict[str, dict[Stage, None]] = {}
        for cell in self.not_chosen:
            unchosen.setdefault(cell.loss, {})[cell.stage] = None
        if unchosen:
            said.append("not chosen: " + "; ".join(f"{loss} {', '.join(at)}" for loss, at in unchosen.items()))
        return said

    def figures(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "possible": self.possible,
            "reached": {str(cell): count for cell, count in self.reached.items()},
            "impossible": {str(cell): reason for cell, reason in self.impossible.items()},
            "no_such_way": {f"{party} {way}": reason for (party, way), reason in self.no_such_way.items()},
            "never_reached": [str(cell) for cell in self.never_reached],
            "not_chosen": [str(cell) for cell in self.not_chosen],
        }


def coverage(losses: Collection[Loss], stood: Iterable[tuple[Cell, bool]]) -> Coverage:
    """Return what was covered, from whether the call of each cell that was tried stood where it was to stand."""
    possible, cannot = all_cells(losses)
    reached: dict[Cell, int] = {}
    tried = set()
    for cell, did in stood:
        tried.add(cell)
        if did:
            reached[cell] = reached.get(cell, 0) + 1
    return Coverage(
        reached={cell: reached[cell] for cell in possible if cell in reached},
        impossible=cannot,
        never_reached=[cell for cell in possible if cell in tried and cell not in reached],
        not_chosen=[cell for cell in possible if cell not in tried],
        no_such_way=missing_ways(losses),
    )
