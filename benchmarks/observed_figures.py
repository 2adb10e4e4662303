"""What it costs to look on: traces of which one in a hundred is recorded, and people who have the page open.

Both are programs of their own, with fleets of their own (`benchmarks.telemetry`, `benchmarks.watching`).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from typing import Any

from benchmarks.figures import Measure, Stage, Values
from benchmarks.sizes import Figure


async def traces(stage: Stage) -> Values:
    """What calls cost more in processor time, of orchestrator and worker together."""
    scale = stage.scale
    sizes = {"--rounds": scale.traced_rounds, "--calls": scale.traced_calls, "--lone": scale.traced_lone}
    taken = {
        "traces_burst": scale.traced_rounds * scale.traced_calls,
        "traces_lone": scale.traced_rounds * scale.traced_lone,
    }
    return Values(values_of_traces(await told("benchmarks.telemetry", sizes)), taken)


def values_of_traces(found: dict[str, Any]) -> dict[str, float]:
    """Return our figures of what `benchmarks.telemetry` prints."""
    return {
        f"traces_{name}_{way}_more_us": found[name][said]["more_us"]
        for name in ("burst", "lone")
        for way, said in (("unused", "api"), ("sampled", "1 %"))
    }


async def watching(stage: Stage) -> Values:
    """What the worker's, Redis's and the API's parts of a call are while runs are watched, over unseen."""
    scale = stage.scale
    sizes = {"--runs": scale.watched_runs, "--viewers": scale.viewers, "--pairs": scale.watched_pairs}
    found = await told("benchmarks.watching", sizes)
    watched_calls = sum(half["calls"] for half in found["halves"] if half["is_watched"])
    return Values(values_of_watching(found), {"watching": watched_calls})


def values_of_watching(found: dict[str, Any]) -> dict[str, float]:
    """Return our figures of what `benchmarks.watching` prints."""
    watched, unseen = ([half for half in found["halves"] if half["is_watched"] is seen] for seen in (True, False))
    return {
        "watched_worker_over_unseen": found["worker_over_unwatched"],
        "watched_redis_us_per_call": _median(watched, "redis_us"),
        "unseen_redis_us_per_call": _median(unseen, "redis_us"),
        "watched_api_us_per_call": _median(watched, "api_us"),
    }


def _median(halves: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(half[name]) for half in halves)


async def told(module: str, sizes: dict[str, int]) -> Any:
    """Return what a program of ours prints as JSON. Raises RuntimeError if it fails."""
    words = [str(word) for pair in sizes.items() for word in pair]
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--json", *words), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await program.communicate()
    if program.returncode:
        raise RuntimeError(f"{module} ended with status {program.returncode}")
    return json.loads(out)


OBSERVED_MEASURES: dict[Figure, Measure] = {Figure.TRACES: traces, Figure.WATCHING: watching}
