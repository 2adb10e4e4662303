"""The figures as a picture: one panel each, one dot per contender, on logarithmic axes."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from benchmarks.report import number
from benchmarks.summary import LESS_IS_BETTER, Summary

mpl.use("svg")
# Text as text: the picture stays small, searchable and the same from run to run.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolfleet", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  # the backend is chosen above
from matplotlib.axes import Axes  # noqa: E402  # after the choice of a backend

PANELS = {
    "latency_p50_ms": "Latency p50, one in flight (ms)",
    "latency_p99_ms": "Latency p99, one in flight (ms)",
    "burst_calls_per_s": "Burst of up to 10,000 (calls/s)",
    "conversations_calls_per_s": "Up to 500 conversations of 20 calls (calls/s)",
    "cpu_us_per_call": "Processor time per call, Redis included (µs)",
    "sleep_fanout_s": "1,000 sleeps of 100 ms, one worker (s)",
    "drain_1000_calls_per_s": "1,000 that waited in the queue (calls/s)",
    "drain_100000_calls_per_s": "100,000 that waited in the queue (calls/s)",
}
INK, ACCENT, QUIET = "#334155", "#0d9488", "#94a3b8"


def draw(summary: Summary, path: Path) -> None:
    """Write the picture; panels without values are left out."""
    panels = [figure for figure in PANELS if any(figure in row for row in summary.values.values())]
    if not panels:
        return
    rows = -(-len(panels) // 2)
    height = 0.8 + rows * (0.7 + 0.28 * len(summary.values))
    canvas, grid = plt.subplots(rows, 2, figsize=(10, height), squeeze=False, layout="constrained")
    for axes, figure in zip(grid.flat, panels, strict=False):
        panel(axes, figure, summary)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    canvas.savefig(path, metadata={"Date": None})
    plt.close(canvas)


def panel(axes: Axes, figure: str, summary: Summary) -> None:
    """One figure of all contenders that have it."""
    values = {name: row[figure] for name, row in reversed(summary.values.items()) if figure in row}
    better = "less" if figure in LESS_IS_BETTER else "more"
    axes.set_title(f"{PANELS[figure]}, {better} is better", loc="left", fontsize=9, color=INK)
    axes.set_xscale("log")
    axes.set_xlim(min(values.values()) / 1.6, max(values.values()) * 3)
    colors = [colour(name) for name in values]
    axes.scatter(list(values.values()), list(values), color=colors, s=36, zorder=2)
    for name, value in values.items():
        axes.annotate(number(value), (value, name), xytext=(7, -3), textcoords="offset points", color=INK)
    axes.grid(axis="y", color="#e2e8f0", zorder=0)
    axes.tick_params(length=0, which="both", colors=INK)
    axes.tick_params(axis="x", which="both", labelbottom=False)  # every dot bears its value
    axes.spines[:].set_visible(False)
    axes.margins(y=0.12)


def colour(name: str) -> str:
    """Toolfleet stands out, the floor stands back."""
    if name.startswith("toolfleet"):
        return ACCENT
    return QUIET if name.startswith("floor") else INK
