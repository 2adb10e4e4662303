"""What traces cost: `python -m benchmarks.telemetry`, CPU per call of orchestrator and worker, in pairs that alternate.

Three fleets, each on a server of its own: without OpenTelemetry's provider ("off"), with its API imported and no
provider ("api"), and with the SDK sampling one trace in a hundred ("1 %"). Each round makes the same calls on each, in
turns, so that a machine that slows down slows all of them alike; what counts is the median of the differences to "off".
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import psutil
import typer

from benchmarks.cores import cores, put_on_cores
from benchmarks.launch import pid_of_server
from benchmarks.processes import cpu_s
from toolfleet.local.fleet import LocalFleet

TOOLS: Final = "benchmarks.contenders.toolfleet_tools"
WAYS: Final = ("off", "api", "1 %")
ENVIRONMENT: Final = {
    "off": {},
    "api": {"TELEMETRY_BENCHMARK": "api"},
    "1 %": {
        "TELEMETRY_BENCHMARK": "sdk",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.01",
    },
}
AS_WORKER: Final = "benchmarks.telemetry_set_up"


@dataclass(frozen=True)
class Found:
    """What calls cost in one way, in microseconds of processor time: medians."""

    orchestrator_us: float
    worker_us: float
    more_us: float
    """What both take more than "off" in the same round."""


def main(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 15,
    calls: Annotated[int, typer.Option(min=1, help="Calls of a burst.")] = 2000,
    lone: Annotated[int, typer.Option(min=1, help="Calls that are made one after another.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Measure CPU per call in microseconds: of bursts, and of calls one after another."""
    found = measured(rounds, calls, lone)
    if as_json:
        print(json.dumps({name: {way: asdict(each) for way, each in ways.items()} for name, ways in found.items()}))
        return
    for name, ways in found.items():
        for way, each in ways.items():
            print(
                f"{name:6} {way:4} orchestrator {each.orchestrator_us:7.1f} us, worker {each.worker_us:7.1f} us, "
                f"together {each.more_us:+6.1f} us against off"
            )


def measured(rounds: int, calls: int, lone: int) -> dict[str, dict[str, Found]]:
    """Return what bursts and lone calls cost in each way."""
    found = {}
    with ExitStack() as stack:
        sides = {way: stack.enter_context(side(way)) for way in WAYS}
        for one in sides.values():
            one.burst(calls)
            one.lone(lone)
        for name, measure, n in (("burst", Side.burst, calls), ("lone", Side.lone, lone)):
            taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for number in range(rounds):
                for way in WAYS if number % 2 else reversed(WAYS):
                    taken[way].append(measure(sides[way], n))
            found[name] = {way: _found(each, taken["off"]) for way, each in taken.items()}
    return found


def _found(each: list[tuple[float, float]], off: list[tuple[float, float]]) -> Found:
    orchestrator_us, worker_us = (statistics.median(part) for part in zip(*each, strict=True))
    more = [sum(one) - sum(other) for one, other in zip(each, off, strict=True)]
    return Found(round(orchestrator_us, 1), round(worker_us, 1), round(statistics.median(more), 1))


class Side:
    """A fleet, and an orchestrator in a process of its own that does what it is told."""

    def __init__(self, worker: psutil.Process, orchestrator: subprocess.Popen[str]) -> None:
        self._worker = worker
        self._orchestrator = orchestrator

    def burst(self, n: int) -> tuple[float, float]:
        """CPU of both processes for each of `n` calls at once."""
        return self._measured({"burst": n}, n)

    def lone(self, n: int) -> tuple[float, float]:
        """The same of calls one after another."""
        return self._measured({"lone": n}, n)

    def _measured(self, ask: dict[str, int], n: int) -> tuple[float, float]:
        before_s = cpu_s(self._worker)
        own_us = self._told(ask)
        return own_us / n, (cpu_s(self._worker) - before_s) * 1e6 / n

    def _told(self, ask: dict[str, int]) -> float:
        stdin, stdout = self._orchestrator.stdin, self._orchestrator.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(ask) + "\n")
        stdin.flush()
        return float(stdout.readline())


@contextmanager
def side(way: str) -> Iterator[Side]:
    """A fleet of one worker, traced in this way on both sides."""
    environment: dict[str, str] = {"PYTHONPATH": str(Path.cwd()), **ENVIRONMENT[way]}
    with LocalFleet([AS_WORKER], pools={"io": 1}, environment=environment) as fleet:
        orchestrator = subprocess.Popen(
            [sys.executable, "-m", AS_WORKER],
            env={**os.environ, **fleet.settings.as_environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with orchestrator:
            try:
                one = Side(psutil.Process(fleet.workers[0].pid), orchestrator)
                one.lone(1)  # all threads are there
                _stay(pid_of_server(fleet.settings.redis_url), fleet.workers[0].pid, orchestrator.pid)
                yield one
            finally:
                orchestrator.kill()


def _stay(*processes: int) -> None:
    """Have each process stay on a core, those of every fleet on the same ones."""
    if every := cores():
        put_on_cores({process: {every[number % len(every)]} for number, process in enumerate(processes)})


if __name__ == "__main__":
    typer.run(main)
