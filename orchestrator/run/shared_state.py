"""State that tools share: what each returned, merged into the run's values in the order of the calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Strategy = Literal["replace", "append", "merge"]
"""What a new value does to the old one: takes its place, is added to its list, or has its keys put over its own."""


def merged(values: Mapping[str, Any], update: Mapping[str, Any], strategies: Mapping[str, Strategy]) -> dict[str, Any]:
    """The values after one tool's update. What does not fit its strategy (no list, no object) replaces."""
    result = dict(values)
    for key, new in update.items():
        result[key] = (
            _combined(result.get(key), new, strategies.get(key, "replace"))
            if key in result
            else (_first(new, strategies.get(key, "replace")))
        )
    return result


def _first(new: Any, strategy: Strategy) -> Any:
    return new if strategy != "append" or isinstance(new, list) else [new]


def _combined(old: Any, new: Any, strategy: Strategy) -> Any:
    if strategy == "append":
        added: Sequence[Any] = new if isinstance(new, list) else [new]
        return [*(old if isinstance(old, list) else [old]), *added]
    if strategy == "merge" and isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **new}
    return new
