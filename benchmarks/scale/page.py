"""`python -m benchmarks.scale.page`: write what was measured into docs/scaling.md, between its marks, and draw it.

A test holds the page against the files (`tests/benchmarks/test_scaling_page.py`), so no figure on it is typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.kept import PARKED, POINTS, SHARDS, SOAK, points_in
from benchmarks.scale.model import TOOL_S, Costs, checked, needed, predicted, reference
from benchmarks.scale.points import Axis, Point
from benchmarks.scale.stand import CONCURRENCY
from benchmarks.scale.telling import MODELLED, RATES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "scaling.md"
PICTURE: Final = POINTS.with_suffix(".svg")

MARKED: Final = re.compile(r"(<!-- (?P<name>[a-z ]+): .*?-->\n).*?(?=<!-- end -->)", re.DOTALL)

NAMES: Final = {"nothing": "none", "wait_10ms": "10 ms", "wait_100ms": "100 ms"}


def filled(page: str) -> str:
    """Return the page with each marked table as the files have it."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found['name']]()}\n\n", page)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_workers() -> str:
    """Calls per second of tools that wait, by worker processes."""
    return _by("workers", "worker processes")


def by_orchestrators() -> str:
    """The same by orchestrators."""
    return _by("orchestrators", "orchestrators")


def _by(axis: Axis, what: str) -> str:
    head = ["a call takes", what, "calls/s", "orchestrators, µs", "workers, µs", "Redis, µs", "all, µs", "commands"]
    head += ["bytes in", "bytes out"]
    rows = []
    for point in _of(axis):
        costs = (point.orchestrator_us, point.worker_us, point.redis_us, point.cpu_us)
        bytes_ = (f"{point.bytes_in:,.0f}", f"{point.bytes_out:,.0f}")
        numbers = (f"{point.at:,}", f"{point.calls_per_s:,.0f}", *(f"{us:.0f}" for us in costs))
        rows.append([NAMES[point.tool], *numbers, f"{point.commands:.1f}", *bytes_])
    return table(head, rows)


def by_waiting() -> str:
    """What a call costs while so many wait, and what it takes."""
    return _of_what_waits("waiting", "waiting", over="over 1,000")


def by_runs() -> str:
    """The same by the runs that they are of."""
    return _of_what_waits("runs", "of so many runs")


def _of_what_waits(axis: Axis, what: str, *, over: str | None = None) -> str:
    head = [what, "orchestrator, µs", "worker, µs", "Redis, µs", "its rewriting, µs", "all, µs"]
    head += [over, "commands"] if over else ["commands"]
    head += ["Redis, bytes a call", "orchestrator, bytes a call"]
    rows = []
    for point in _of(axis):
        costs = (point.orchestrator_us, point.worker_us, point.redis_us, point.rewriting_us, point.cpu_us)
        bytes_ = (point.redis_bytes_per_waiting_call, point.orchestrator_bytes_per_waiting_call)
        numbers = (
            *(f"{us:.0f}" for us in costs),
            *(("" if point.over_beside is None else f"{point.over_beside:.2f}",) if over else ()),
            f"{point.commands:.1f}",
            *("" if each is None else f"{each:,.0f}" for each in bytes_),
        )
        rows.append([f"{point.at:,}", *numbers])
    return table(head, rows)


def by_shards() -> str:
    """What a call and a turn cost the processes of a fleet of several servers."""
    head = ["of", "shards", "server, µs", "worker, µs", "orchestrator, µs", "commands", "bytes in", "bytes out"]
    rows = []
    for each in sorted(_stored(SHARDS), key=lambda each: (each["work"], each["shards"])):
        costs = (each["server_us"], each["worker_us"], each["orchestrator_us"], each["commands"])
        numbers = (*costs, each["read_bytes"], each["written_bytes"])
        rows.append([f"a {each['work']}", str(each["shards"]), *(f"{number:,.0f}" for number in numbers)])
    return table(head, rows)


def of_parked() -> str:
    """What runs take that rest."""
    found = _stored(PARKED)["parked"]
    rows = [
        ["orchestrator's memory for a run", f"{found['rss_bytes_per_run']:,.0f} bytes"],
        ["asyncio tasks before, and with all parked", f"{found['tasks_before']}, {found['tasks_parked']}"],
        ["processor while nothing happens, orchestrator", f"{found['idle_cpu_percent']:.1f} % of a core"],
        ["processor while nothing happens, Redis", f"{found['server_idle_cpu_percent']:.1f} % of a core"],
        ["from the end of a job to its run's next question, p50", f"{found['wake_p50_ms']:.1f} ms"],
        ["the same, p99", f"{found['wake_p99_ms']:.1f} ms"],
        ["begun and parked", f"{found['runs'] / found['begin_s']:,.0f} a second"],
        ["adopted by another orchestrator, all of them", f"{found['adopted_s']:.1f} s"],
        ["ended, all of them", f"{found['ended_s']:.1f} s"],
        ["forgotten", f"{found['forgotten']}"],
    ]
    return table([f"{found['runs']:,} parked runs", ""], rows)


def of_model() -> str:
    """The model beside what was measured."""
    rows = []
    for each in checked(points_in(POINTS), CONCURRENCY):
        point = each.point
        numbers = (f"{point.calls_per_s:,.0f}", f"{each.cores:.2f}", f"{each.calls_per_s:,.0f}", f"{each.ratio:.2f}")
        rows.append([f"{point.at} {point.axis}", NAMES[point.tool], *numbers, each.bound])
    return table(
        ["of", "a call takes", "measured/s", "cores it had", "model/s", "measured over model", "bounded by"], rows
    )


def of_larger() -> str:
    """What larger fleets do, by the model."""
    rows = []
    for fleet in MODELLED:
        rate, bound = predicted(_costs(), fleet, TOOL_S["wait_100ms"])
        counts = (fleet.orchestrators, fleet.workers, fleet.shards, fleet.cores)
        rows.append([*(str(count) for count in counts), f"{rate:,.0f}", bound])
    return table(["orchestrators", "worker processes", "servers", "cores", "calls/s", "bounded by"], rows)


def of_need() -> str:
    """What a number of calls keeps wholly busy, by the model."""
    rows = []
    for rate in RATES:
        found = needed(_costs(), rate, TOOL_S["wait_100ms"], CONCURRENCY)
        rows.append([f"{rate:,}", *(f"{each:.1f}" for each in found.values())])
    return table(["calls/s", "orchestrators", "worker processes", "servers", "cores"], rows)


def of_soak() -> str:
    """What came of the soak, and what was held during it."""
    found = _stored(SOAK)
    samples, verdict = found["samples"], found["verdict"]
    chosen = [samples[0], samples[len(samples) // 10], samples[len(samples) // 2], samples[-1]]
    rows = [["calls by then", *(f"{sample['calls']:,}" for sample in chosen)]]
    for name in samples[0]["mib"]:
        rows.append([f"{name}, MiB", *(f"{sample['mib'][name]:.0f}" for sample in chosen)])
        rows.append([f"{name}, descriptors", *(f"{sample['descriptors'][name]:.0f}" for sample in chosen)])
    rows.append(["Redis, MiB", *(f"{sample['redis_mib']:.1f}" for sample in chosen)])
    rows.append(["Redis, keys", *(f"{sample['keys']:,}" for sample in chosen)])
    told = (
        f"{found['calls']:,} calls, {found['kills']} kills, {found['seconds']:,.0f} s: {verdict['lost']} lost, "
        f"{verdict['duplicated']} duplicated, {verdict['mispaired']} mispaired, {verdict['in_doubt']} in doubt."
    )
    return f"{told}\n\n{table(['held', 'first', 'a tenth', 'half', 'last'], rows)}"


def of_machine() -> str:
    """On what all of it was measured."""
    about = json.loads(POINTS.read_text())["about"]
    machine, server = about["machine"], about["server"]
    return (
        f"{machine['cores']} cores ({machine['processor']}), Python {about['python']}, {server['version']} with an "
        f"append-only file that is written every second, {about['date'][:10]}."
    )


TABLES: Final = {
    "workers": by_workers,
    "orchestrators": by_orchestrators,
    "waiting": by_waiting,
    "runs": by_runs,
    "shards": by_shards,
    "parked": of_parked,
    "model": of_model,
    "larger": of_larger,
    "need": of_need,
    "soak": of_soak,
    "machine": of_machine,
}


def _of(axis: Axis) -> list[Point]:
    return [point for point in points_in(POINTS) if point.axis == axis]


def _costs() -> Costs:
    return Costs.of(reference(points_in(POINTS)))


def _stored(path: Path) -> Any:
    return json.loads(path.read_text())


if __name__ == "__main__":
    from benchmarks.scale.picture import draw

    PAGE.write_text(filled(PAGE.read_text()))
    draw(points_in(POINTS), PICTURE)
