"""Toolfleet with its worker in Go."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.contender import Command, Workload
from benchmarks.contenders.toolfleet_orchestrator import Toolfleet
from tests.workers_go import building

TOOLS = Path(building.__file__).with_name("bench_tools.go")


def build() -> Path:
    """The worker's program. Raises AssertionError with the compiler's words, OSError where there is none."""
    return building.built(TOOLS)


class ToolfleetGo(Toolfleet):
    """The same tools, in Go."""

    settings: ClassVar[str] = "as toolfleet, with the worker in Go: 1 process, 1000 calls at a time, claims"

    def worker(self, workload: Workload) -> Command:
        """One worker for both workloads."""
        del workload
        return Command((str(build()),), self.fleet_settings.as_environment())
