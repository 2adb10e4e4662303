"""Toolfleet with its worker in TypeScript, as its package is published."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.contender import Command, Workload
from benchmarks.contenders.toolfleet_orchestrator import Toolfleet
from tests.clients.environments import NODE  # type: ignore[attr-defined]  # for mypy a folder has its name
from tests.workers_ts.built import built


def build() -> Path:
    """The package, compiled. Raises AssertionError with the compiler's words, OSError where there is none."""
    return built()


class ToolfleetTypeScript(Toolfleet):
    """The same tools, in Node."""

    settings: ClassVar[str] = "as toolfleet, with the worker in TypeScript: 1 process, 1000 calls at a time, claims"

    def worker(self, workload: Workload) -> Command:
        """One worker for both workloads."""
        del workload
        return Command((str(NODE), str(build() / "tools" / "bench_tools.ts")), self.fleet_settings.as_environment())
