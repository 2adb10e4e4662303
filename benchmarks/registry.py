"""The contenders by name. A contender is imported only in the process that measures it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from benchmarks.contender import Contender

BASELINE = "celery"
PATHS = {
    "toolfleet": "benchmarks.contenders.toolfleet_orchestrator:Toolfleet",
    "toolfleet (read-only tool)": "benchmarks.contenders.toolfleet_orchestrator:ToolfleetReadOnly",
    "toolfleet (events, Flower)": "benchmarks.contenders.toolfleet_orchestrator:ToolfleetEvents",
    "toolfleet (worker in TypeScript)": "benchmarks.contenders.toolfleet_typescript:ToolfleetTypeScript",
    "toolfleet (worker in Go)": "benchmarks.contenders.toolfleet_go:ToolfleetGo",
    "celery": "benchmarks.contenders.stock_celery:StockCelery",
    "celery (group)": "benchmarks.contenders.stock_celery:StockCeleryGroup",
    "taskiq": "benchmarks.contenders.taskiq_redis_list:Taskiq",
    "dramatiq": "benchmarks.contenders.dramatiq_redis:Dramatiq",
    "rq": "benchmarks.contenders.rq_simple:Rq",
    "docket": "benchmarks.contenders.docket_streams:DocketStreams",
    "floor": "benchmarks.contenders.floor:Floor",
    "floor (raw protocol)": "benchmarks.contenders.raw_floor:RawFloor",
}
QUICK = ("toolfleet", "toolfleet (events, Flower)", "celery", "taskiq", "dramatiq", "floor", "floor (raw protocol)")
COMPILED = ("toolfleet (worker in TypeScript)", "toolfleet (worker in Go)")
"""Who is built first, by compilers and packages that need not be there (Node's, Go's, Debian's)."""
WITH_RUNS = ("toolfleet",)
"""Who has runs, turns and handles, and so takes the figures of those."""


def present() -> dict[str, str]:
    """Name and path of every contender whose file exists."""
    return {name: path for name, path in PATHS.items() if find_spec(path.partition(":")[0]) is not None}


def unbuilt(name: str) -> str | None:
    """Why a contender in another language cannot be measured here, once it was tried to build it; None for others."""
    if name not in COMPILED:
        return None
    try:
        import_module(PATHS[name].partition(":")[0]).build()
    except (AssertionError, ImportError, OSError) as error:
        return next(iter(str(error).splitlines()), type(error).__name__)
    return None


def load(path: str) -> Callable[[str], Contender]:
    """The contender's class, to be called with the server's address."""
    module, _, name = path.partition(":")
    return cast("Callable[[str], Contender]", getattr(import_module(module), name))
