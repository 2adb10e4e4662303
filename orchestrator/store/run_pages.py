"""The stored runs page by page, the newest first: one command for a page, whatever is stored.

A page begins behind the last run of the one before, wherever that stands by now: what begins meanwhile moves nothing.
Reads heads only; whose a run is, its seal says (`RunStore.head_of`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.orchestrator.errors import BadCursor
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.run_store import Head, RunStore
from toolfleet.scripts import lua
from toolfleet.skipped import text_of

PAGE_OF_RUNS: Final = lua(__package__, "page_of_runs")

LOOKED_AT_MAX: Final = 2000
"""At how many runs one page looks, where only some of them are wanted: about 5 ms of Redis."""

CURSOR: Final = re.compile(r"(\d{1,17})_(.{1,300})", re.DOTALL)


class RunPage(NamedTuple):
    """Some runs, the newest first."""

    heads: list[Head]
    """Fewer than were asked for where only some are wanted, and they are rare."""
    before: str
    """What the next page is asked for with; empty when there is none."""


class RunPages:
    """Reads the list of runs. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, store: RunStore) -> None:
        self._client = client
        self._keys = keys
        self._store = store
        self._read = client.register_script(PAGE_OF_RUNS)

    async def page(
        self, *, before: str = "", limit: int = 50, states: Collection[State] = (), tenant: str | None = None
    ) -> RunPage:
        """Return runs in these states (in any, without), of this tenant if it is named. Raises BadCursor."""
        begins = place_in(before)
        heads: list[Head] = []
        looked_at = 0
        while True:
            rows, score, run = await self._read(
                keys=[self._keys.runs_of(tenant) if tenant else self._keys.runs()],
                args=[*begins, limit - len(heads), LOOKED_AT_MAX, self._keys.head(""), *states],
            )
            found = [await self._head(row) for row in rows]
            heads += [head for head in found if head is not None and tenant in {None, head.tenant}]
            looked_at += max(len(rows), 1)
            begins = (text_of(score), text_of(run))
            # Others' runs are in the list of all, and only their seals tell them apart.
            if not run or len(heads) >= limit or states or looked_at >= LOOKED_AT_MAX:
                return RunPage(heads, "_".join(begins) if run else "")

    async def _head(self, row: list[Any]) -> Head | None:
        _, run_id, flat = row
        return await self._store.head_of(text_of(run_id), dict(zip(flat[::2], flat[1::2], strict=True)))


def place_in(cursor: str) -> tuple[str, str]:
    """Return where a cursor points in a list: a score and what has it. Raises BadCursor."""
    if not cursor:
        return "", ""
    if (found := CURSOR.fullmatch(cursor)) is None:
        raise BadCursor("this cursor was not given out here: begin without one")
    return found[1], found[2]
