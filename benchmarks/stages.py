"""From stacks that py-spy has seen to the stages of a call: the module of ours that is nearest to what runs.

Libraries count for whoever called them; what nobody of ours has called is told by the library's name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

OURS = "toolfleet"
BENCHMARK = "(the benchmark)"
EVENT_LOOP = "(event loop)"
ROOTS = frozenset({"profile", "command", "__main__"})
"""Modules in which every stack of a thread begins, so that they say nothing of it."""
LOOPS = frozenset({"Runner.run", "AsyncioPool._run_until_it_stops"})
"""Functions that are at the end of a stack while uvloop itself works: sockets, wake-ups, timers."""
LIBRARIES = {
    "asyncio": EVENT_LOOP,
    "celery": "(Celery)",
    "kombu": "(Celery)",
    "billiard": "(Celery)",
    "redis": "(redis-py)",
}
ELSEWHERE = "(elsewhere)"


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    function: str
    path: PurePath


@dataclass(frozen=True)
class Stage:
    """What one part of the work costs: microseconds of processor time per call, and where most of them go."""

    name: str
    us_per_call: float
    mostly_in: str
    """The function that was seen most at the end of its stacks."""


def stages(stacks: Iterable[tuple[Sequence[Frame], int]], us_per_call: float) -> list[Stage]:
    """Share out what a call costs over its stages, by how often each was seen; the dearest first."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for stack, times in stacks:
        seen[stage_of(stack)][stack[-1].function] += times
    total = sum(leaves.total() for leaves in seen.values())
    found = [
        Stage(name, us_per_call * leaves.total() / total, leaves.most_common(1)[0][0]) for name, leaves in seen.items()
    ]
    return sorted(found, key=lambda stage: -stage.us_per_call)


def stage_of(stack: Sequence[Frame]) -> str:
    """The stage that a stack belongs to; the root comes first."""
    if stack[-1].function in LOOPS:
        return EVENT_LOOP
    for frame in reversed(stack):
        if frame.path.stem in ROOTS:
            continue
        if OURS in frame.path.parts[:-1]:
            parts = frame.path.with_suffix("").parts
            return "/".join(parts[len(parts) - parts[::-1].index(OURS) :])
        if "benchmarks" in frame.path.parts:
            return BENCHMARK
    for frame in reversed(stack):
        for package, name in LIBRARIES.items():
            if package in frame.path.parts:
                return name
    return ELSEWHERE


def read_stacks(raw: str) -> list[tuple[list[Frame], int]]:
    """Parse py-spy's raw format: on each line a stack, its frames between semicolons, and how often it was seen.

    A line that does not end so is left out: py-spy does not stop the process, and may read a name that is just leaving.
    """
    lines = (line.rpartition(" ") for line in raw.splitlines())
    return [
        ([frame_of(text) for text in stack.split(";")], int(times)) for stack, _, times in lines if times.isdecimal()
    ]


def frame_of(text: str) -> Frame:
    """Parse `function (path:line)`."""
    function, _, place = text.rpartition(" (")
    return Frame(function, PurePath(place.rstrip(")").rpartition(":")[0] or place.rstrip(")")))
