"""How many runs are in which state: counted, not looked for.

The script that writes an event puts the run at a place in one sorted set that says its state, whether it waits for a
person, and whose it is; how many there are between two places costs the same, whatever is stored. Each look also
compares some runs with their heads: what an older version has written, or somebody has removed, is put right in time.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.skipped import text_of

COUNT: Final = lua(__package__, "trim_runs", "count_states", before=CLOCK)

COMPARED: Final = 50
"""How many runs each look compares with their heads."""

COMPARED_AMISS: Final = 1000
"""How many where some are missing: about 3 ms of Redis."""

TENANTS: Final = 2**48
"""How many places a state has. Tenants whose names have one digest would be counted together."""

PLACES: Final = {state: place for place, state in enumerate(State, start=1)}
"""Part of what is stored: a state keeps its number. `count_states.lua` is given it."""


class Tally(NamedTuple):
    """What runs come to, as their heads say."""

    by_state: dict[State, int]
    awaiting_approval: int
    """How many of them wait for a person."""

    @property
    def runs(self) -> int:
        """How many there are."""
        return sum(self.by_state.values())


class RunStates:
    """Counts the stored runs. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._count = client.register_script(COUNT)
        self._compared_to = ""

    async def tally(self, *, tenant: str | None = None) -> Tally:
        """Count the runs of a tenant ("": those of nobody), or all."""
        keys = self._keys
        counts, last = await self._count(
            keys=[keys.run_states(), keys.runs(), keys.runs_ending(), keys.run_names()],
            args=[
                *(keys.head(""), keys.runs_of(""), "" if tenant is None else place_of(tenant), TENANTS),
                *(self._compared_to, COMPARED, COMPARED_AMISS),
                *(part for state, place in PLACES.items() for part in (state.value, place)),
            ],
        )
        self._compared_to = text_of(last)
        working, awaiting = counts[::2], counts[1::2]
        found = dict(zip(PLACES, (sum(pair) for pair in zip(working, awaiting, strict=True)), strict=True))
        return Tally({state: count for state, count in found.items() if count}, sum(awaiting))


def score_of(run: Run, awaiting: int) -> int:
    """Return where a run stands among all: an exact float's integer."""
    return (2 * PLACES[run.state] + bool(awaiting)) * TENANTS + place_of(run.terms.tenant)


@lru_cache(maxsize=1000)
def place_of(tenant: str) -> int:
    """Return a tenant's place in each state, as `count_states.lua` has it; 0 for nobody's runs."""
    return int(hashlib.sha1(tenant.encode(), usedforsecurity=False).hexdigest()[:12], 16) if tenant else 0
