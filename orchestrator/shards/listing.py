"""Lists of several shards as one. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from toolfleet.orchestrator.store.run_store import Head


class HeadsOfShards(list[Head]):
    """A list of runs, and the shards that are not in it."""

    missing: Mapping[str, str]
    """Why each of them gave no answer, by its name."""

    def __init__(self, heads: Iterable[Head], missing: Mapping[str, str]) -> None:
        super().__init__(heads)
        self.missing = dict(missing)


def merged(lists: Iterable[Sequence[Head]], missing: Mapping[str, str], *, limit: int, offset: int) -> HeadsOfShards:
    """Return so many heads behind the first `offset`, newest first; each list is sorted so and reaches as far."""
    newest_first = list(heapq.merge(*lists, key=lambda head: -head.started_unix_s))
    return HeadsOfShards(newest_first[offset : offset + limit], missing)
