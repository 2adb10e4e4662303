"""What a fleet of any size does, from what a call costs each kind of process: an arithmetic that can be checked.

An orchestrator, a worker and a server each use at most one core, as each has one event loop. So a fleet is as quick as
whichever of these is used up first: the loops of its orchestrators, of its workers or of its servers, the cores of its
machines, or the slots of its workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.scale.points import Point

TOOL_S: Final = {"nothing": 0.0, "wait_10ms": 0.01, "wait_100ms": 0.1}

REFERENCE: Final = ("workers", "wait_100ms", 2)
"""The point whose costs are taken."""


@dataclass(frozen=True)
class Costs:
    """Microseconds of processor time that a call takes of each kind of process."""

    orchestrator_us: float
    worker_us: float
    redis_us: float

    @classmethod
    def of(cls, point: Point) -> Costs:
        """What was measured at a point."""
        return cls(point.orchestrator_us, point.worker_us, point.redis_us)

    @property
    def us(self) -> float:
        """All together."""
        return self.orchestrator_us + self.worker_us + self.redis_us


@dataclass(frozen=True)
class Fleet:
    """How many of each there are. `cores` are those of all machines."""

    orchestrators: int
    workers: int
    shards: int
    cores: float
    slots: int


def bounds(costs: Costs, fleet: Fleet, tool_s: float) -> dict[str, float]:
    """Calls per second at which each part of a fleet is used up."""
    found = {
        "orchestrators": fleet.orchestrators * 1e6 / costs.orchestrator_us,
        "workers": fleet.workers * 1e6 / costs.worker_us,
        "servers": fleet.shards * 1e6 / costs.redis_us,
        "cores": fleet.cores * 1e6 / costs.us,
    }
    return found | ({"slots": fleet.workers * fleet.slots / tool_s} if tool_s else {})


def predicted(costs: Costs, fleet: Fleet, tool_s: float) -> tuple[float, str]:
    """Calls per second of a fleet, and what bounds them."""
    found = bounds(costs, fleet, tool_s)
    first = min(found, key=lambda name: found[name])
    return found[first], first


def needed(costs: Costs, calls_per_s: float, tool_s: float, slots: int) -> dict[str, float]:
    """How many of each a number of calls per second keeps wholly busy; fractions, so that nobody rounds twice."""
    return {
        "orchestrators": calls_per_s * costs.orchestrator_us / 1e6,
        "workers": max(calls_per_s * costs.worker_us / 1e6, calls_per_s * tool_s / slots),
        "servers": calls_per_s * costs.redis_us / 1e6,
        "cores": calls_per_s * costs.us / 1e6,
    }


def reference(points: list[Point]) -> Point:
    """The point whose costs are taken: two workers with tools of 100 ms, or whatever was measured first."""
    return next((each for each in points if (each.axis, each.tool, each.at) == REFERENCE), points[0])


class Checked(NamedTuple):
    """A measured point, and what the model says of it."""

    point: Point
    cores: float
    """What all its processes together had of the machine's, on which others may have worked."""
    calls_per_s: float
    bound: str

    @property
    def ratio(self) -> float:
        """Measured over model."""
        return self.point.calls_per_s / self.calls_per_s


def is_modelled(point: Point) -> bool:
    """Whether the model says anything of such a point. Of calls that wait until they are let go it does not."""
    return point.axis in ("workers", "orchestrators")


def checked(points: list[Point], slots: int) -> list[Checked]:
    """Each measured point beside what the model says of a fleet with so many cores, from the costs of one alone."""
    costs = Costs.of(reference(points))
    found = []
    for point in points:
        if is_modelled(point):
            cores = point.calls_per_s * point.cpu_us / 1e6
            fleet = Fleet(point.orchestrators, point.workers, 1, cores, slots)
            found.append(Checked(point, cores, *predicted(costs, fleet, TOOL_S[point.tool])))
    return found
