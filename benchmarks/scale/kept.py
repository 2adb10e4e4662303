"""What was measured, in a file: points of later measurements take the place of earlier ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.scale.points import Axis, Point

FOLDER = Path(__file__).parent
POINTS = FOLDER / "latest.json"
SHARDS = FOLDER / "shards.json"
PARKED = FOLDER / "parked.json"
SOAK = FOLDER.parent / "soak" / "latest.json"


def put_into(path: Path, points: Sequence[Point], about: Mapping[str, Any]) -> None:
    """Write the points beside those that the file has of other places."""
    kept = {_place(point): point for point in points_in(path)} if path.exists() else {}
    kept |= {_place(point): point for point in points}
    found = {"about": about, "points": [point.model_dump() for _, point in sorted(kept.items(), key=_order)]}
    path.write_text(json.dumps(found, indent=2) + "\n")


def points_in(path: Path) -> list[Point]:
    """The points that a file has, by axis, tool and place."""
    return [Point.model_validate(point) for point in json.loads(path.read_text())["points"]]


def _place(point: Point) -> tuple[Axis, str, int]:
    return point.axis, point.tool, point.at


def _order(item: tuple[tuple[Axis, str, int], Point]) -> tuple[int, int, str, int]:
    axis, tool, at = item[0]
    return get_args(Axis).index(axis), len(tool), tool, at
