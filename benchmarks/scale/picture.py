"""The findings of the scale bench as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from benchmarks.scale.points import Point

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "toolfleet", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402  # the backend is chosen above

ACCENT = "#0d9488"


def draw(points: Sequence[Point], path: Path) -> None:
    """Write the picture: a panel for each axis."""
    axes_found = {axis: [point for point in points if point.axis == axis] for axis in ("workers", "orchestrators")}
    canvas, panels = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    for panel, (axis, found) in zip(panels[:2], axes_found.items(), strict=True):
        for tool in dict.fromkeys(point.tool for point in found):
            line = [point for point in found if point.tool == tool]
            panel.plot([point.at for point in line], [point.calls_per_s for point in line], marker="o", label=tool)
        panel.set(title=f"calls/s by {axis}", xlabel=axis)
        panel.set_ylim(bottom=0)
        panel.legend(frameon=False)
    waiting = {"waiting": "calls that wait", "runs": "runs that these are of"}
    for panel, (axis, what) in zip(panels[2:], waiting.items(), strict=True):
        line = [point for point in points if point.axis == axis]
        panel.plot([point.at for point in line], [point.cpu_us for point in line], marker="o", color=ACCENT)
        panel.set(title=f"µs a call, by {what}", xscale="log", xlabel=axis)
        panel.set_ylim(bottom=0)
    canvas.savefig(path, metadata={"Date": None})
    plt.close(canvas)
