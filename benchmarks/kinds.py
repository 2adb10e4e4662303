"""What a call costs by how its tool is run: `python -m benchmarks.kinds`, coroutines, threads and processes.

One fleet with a worker for the first two and one for the third, with as many processes as there are cores. The tools do
nothing, so that what is measured is the way to them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, NamedTuple

import psutil
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.figures import check
from benchmarks.launch import pid_of_server
from benchmarks.own_figures import one_call
from benchmarks.processes import ProcessTree
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

TOOLS: Final = "benchmarks.kind_tools"
KINDS: Final = ("on_the_loop", "on_a_thread", "in_a_process")
REPEATS: Final = 5


class Costs(NamedTuple):
    """Processor time of one call."""

    orchestrator: float
    workers: float
    redis: float


@dataclass(frozen=True)
class Finding:
    """Medians of the repeats."""

    kind: str
    calls_per_s: float
    us_per_call: Costs
    """Of a burst."""
    lone_p50_ms: float


@dataclass(frozen=True)
class Side:
    """An orchestrator, and the processes that are measured besides this one."""

    orchestrator: Orchestrator
    workers: Sequence[ProcessTree]
    server: ProcessTree

    async def calls(self, kind: str, n: int) -> None:
        """Make so many calls at once. Raises WrongResults."""
        answers = await self.orchestrator.execute(one_call(n, kind))
        check([json.loads(answer.content) for answer in answers], n)

    def cpu_s(self) -> Costs:
        """Processor seconds used so far."""
        return Costs(time.process_time(), sum(worker.cpu_s() for worker in self.workers), self.server.cpu_s())

    async def burst(self, kind: str, n: int) -> tuple[float, ...]:
        """Calls per second, and what each of so many at once has cost the three."""
        before, began = self.cpu_s(), time.perf_counter()
        await self.calls(kind, n)
        took_s = time.perf_counter() - began
        return n / took_s, *((now - then) / n * 1e6 for now, then in zip(self.cpu_s(), before, strict=True))

    async def lone_ms(self, kind: str, n: int) -> float:
        """The median of so many calls one after another."""
        samples = []
        for _ in range(n):
            began = time.perf_counter()
            await self.calls(kind, 1)
            samples.append(1e3 * (time.perf_counter() - began))
        return statistics.median(samples)


async def measured(fleet: LocalFleet, calls: int, lone: int) -> list[Finding]:
    """Measure each kind of tool on this fleet."""
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        workers = [ProcessTree(psutil.Process(worker.pid)) for worker in fleet.workers]
        server = ProcessTree(psutil.Process(pid_of_server(fleet.settings.redis_url)))
        side = Side(orchestrator, workers, server)
        for kind in KINDS:
            await side.calls(kind, calls)
        found = []
        for kind in KINDS:
            bursts = [await side.burst(kind, calls) for _ in range(REPEATS)]
            rate, *costs_us = (statistics.median(each) for each in zip(*bursts, strict=True))
            found.append(Finding(kind, rate, Costs(*costs_us), await side.lone_ms(kind, lone)))
        return found


def main(
    *,
    calls: Annotated[int, typer.Option(help="How many at once.")] = 2_000,
    lone: Annotated[int, typer.Option(help="How many one after another.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure what calls cost by how their tools are run."""
    collect_rarely()
    with LocalFleet([TOOLS], pools={"io": 1, "cpu": 1}) as fleet:
        found = uvloop.run(measured(fleet, calls, lone))
    if as_json:
        kinds = [{**asdict(each), "us_per_call": each.us_per_call._asdict()} for each in found]
        print(json.dumps({"about": about(quick=False), "kinds": kinds}, default=str))
        return
    title = f"{calls:,} calls at once: how many in a second, and µs of processor time for each"
    table = Table("tool", "/s", "orchestrator", "workers", "Redis", "one alone, ms", title=title)
    for each in found:
        costs = [f"{cost:,.0f}" for cost in each.us_per_call]
        table.add_row(each.kind, f"{each.calls_per_s:,.0f}", *costs, f"{each.lone_p50_ms:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
