"""Which worker may be given which call, decided from what live workers announce. Pure: no Redis, no clock.

Workers that consume one queue need not serve the same tools. A worker's lane is named for what it serves of the queue,
so whoever reads a lane can run all that is in it. Calls that every consumer can run go to the queue itself.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toolfleet.catalog import Announcement
from toolfleet.streams import lane_name
from toolfleet.tool import ToolSpec


def lane_of(queue: str, specs: Iterable[ToolSpec]) -> str:
    """Return the lane of a worker that serves these tools of a queue."""
    served = sorted(f"{spec.contract} {spec.name}" for spec in specs)
    return lane_name(queue, hashlib.sha256("\n".join(served).encode()).hexdigest()[:12])


def lanes_with(workers: Iterable[Announcement], tool: str, contract: str = "", version: int = 0) -> Counter[str]:
    """Return the lanes whose readers serve a tool, with how many calls those take at a time; "" for readers of none.

    `contract`: only under this one. `version`: only in this one, if it is one.
    """
    slots = Counter[str]()
    for worker in workers:
        for spec in worker.tools:
            if spec.name == tool and contract in ("", spec.contract) and version in (0, spec.version):
                slots[worker.lanes.get(spec.queue, "")] += worker.concurrency
    return slots


@dataclass(frozen=True, slots=True)
class Routes:
    """Where the calls of each tool go."""

    _lanes: Mapping[tuple[str, str], Mapping[tuple[int, str], Counter[str]]] = field(default_factory=dict)
    """By queue and tool, then by version and contract; only of what some consumers of the queue do not serve."""

    @classmethod
    def of(cls, workers: Sequence[Announcement]) -> Routes:
        """Return the routes in a fleet of these workers."""
        consumers = Counter(queue for worker in workers for queue in worker.queues)
        lanes: defaultdict[tuple[str, str], dict[tuple[int, str], Counter[str]]] = defaultdict(dict)
        serving = Counter[tuple[str, str]]()
        for worker in workers:
            for spec in worker.tools:
                place = spec.queue, spec.name
                serving[place] += 1
                slots = lanes[place].setdefault((spec.version, spec.contract), Counter())
                slots[worker.lanes.get(spec.queue, "")] += worker.concurrency
        return cls(
            {
                place: by_contract
                for place, by_contract in lanes.items()
                if len(by_contract) > 1 or serving[place] < consumers[place[0]]
            }
        )

    def lane(self, spec: ToolSpec) -> str:
        """Return the lane for a call that was offered with this spec; "" for the queue itself.

        Lanes of the very contract come first, and are taken as often as their readers have room. Those of another
        version of the tool are none at all.
        """
        by_contract = self._lanes.get((spec.queue, spec.name)) if self._lanes else None
        if by_contract is None:
            return ""
        slots = by_contract.get((spec.version, spec.contract))
        if slots is None:
            fit = (each for (version, _), each in by_contract.items() if spec.version in (0, version))
            slots = sum(fit, Counter())
        return chosen(slots) if slots else ""


def chosen(slots: Mapping[str, int]) -> str:
    """Return one of these lanes by chance, each with the weight of its readers' room."""
    return random.choices(list(slots), list(slots.values()))[0]
