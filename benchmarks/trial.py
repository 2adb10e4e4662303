"""One contender, one worker, some figures: the process in which a trial happens.

It is the contender's orchestrator, so nothing of another contender is ever loaded into it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import uvloop
from pydantic import BaseModel

from benchmarks.contender import Task, Workload
from benchmarks.figures import MEASURES, Measure, Stage, Values
from benchmarks.processes import ProcessTree, running
from benchmarks.registry import load
from benchmarks.sizes import Figure, Scale
from toolfleet.garbage import collect_rarely

REDIS_URL = "BENCH_REDIS_URL"
"""Where tasks that are built at import time find their server, in orchestrator and worker alike."""


class TrialOrder(BaseModel):
    """What the harness asks of a trial's process."""

    path: str
    workload: Workload
    figures: tuple[Figure, ...]
    scale: Scale
    redis_url: str
    server_pid: int
    directory: Path

    @property
    def findings(self) -> Path:
        """One JSON line per figure, written as soon as it is known."""
        return self.directory / "findings.jsonl"

    @property
    def worker_log(self) -> Path:
        """What the worker printed."""
        return self.directory / "worker.log"


class Finding(BaseModel):
    """The values of one figure."""

    figure: Figure
    values: dict[str, float]
    calls: dict[str, int]
    settings: str


@asynccontextmanager
async def staged(order: TrialOrder) -> AsyncIterator[Stage]:
    """The contender, connected and warm; afterwards its processes are gone."""
    contender = load(order.path)(order.redis_url)
    with running(contender.worker(order.workload), order.worker_log) as workers:
        await contender.connect()
        try:
            server = ProcessTree(psutil.Process(order.server_pid))
            yield await warmed_up(Stage(contender, workers, server, order.scale), order.workload)
        finally:
            await contender.close()


async def warmed_up(stage: Stage, workload: Workload) -> Stage:
    """Wait for the worker's first result, then burst once to warm up and once to learn the rate."""
    await stage.calls(1)
    if workload is Workload.SLEEPS:
        await stage.calls(stage.scale.warm_up_calls, Task.SLEEP)
    await stage.calls(stage.scale.warm_up_calls)
    start = time.perf_counter()
    await stage.calls(stage.scale.warm_up_calls)
    return replace(stage, rate=stage.scale.warm_up_calls / (time.perf_counter() - start))


async def run(order: TrialOrder) -> None:
    """Take the figures one after the other and write each down at once."""
    settings = load(order.path).settings  # type: ignore[attr-defined]  # whatever module is under trial
    async with staged(order) as stage:
        collect_rarely()  # for all of them alike: as services of Toolfleet have it, and any submitter of tasks may
        for figure in order.figures:
            write(order, figure, await measure_of(figure)(stage), settings)


def measure_of(figure: Figure) -> Measure:
    """How a figure is taken. What only Toolfleet has is loaded for Toolfleet's own figures alone."""
    if figure in MEASURES:
        return MEASURES[figure]
    from benchmarks.own_figures import OWN_MEASURES  # noqa: PLC0415  # loads Toolfleet

    return OWN_MEASURES[figure]


def write(order: TrialOrder, figure: Figure, found: Values, settings: str) -> None:
    """Append one figure to the findings."""
    finding = Finding(figure=figure, values=found.values, calls=found.calls, settings=settings)
    with order.findings.open("a") as lines:
        lines.write(finding.model_dump_json() + "\n")


if __name__ == "__main__":
    uvloop.run(run(TrialOrder.model_validate_json(sys.argv[1])))
