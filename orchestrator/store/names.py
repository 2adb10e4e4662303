"""Finding runs by how their ids begin, and calls by what a model has called them: direct look-ups, no search.

What is found here is a hint: whoever goes there reads the run, which says whose it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

import redis.asyncio

from toolfleet.calls import call_id
from toolfleet.keys import Keys
from toolfleet.orchestrator.run.events import ModelReplied, RunEvent, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.scripts import lua
from toolfleet.skipped import text_of

RUN_NAMES: Final = lua(__package__, "run_names")

FOUND_MAX: Final = 20

NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class RunNames:
    """Finds runs and calls by other names than their own. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._find = client.register_script(RUN_NAMES)

    async def beginning_with(self, text: str, *, tenant: str | None = None) -> list[str]:
        """Return the runs of a tenant, or of anybody, whose ids begin so: twenty at most, without those below them."""
        found = await self._find(
            keys=[self._keys.run_names()], args=[text, int(tenant is None), tenant or "", FOUND_MAX]
        )
        return [text_of(run_id) for run_id in found]

    async def requested_as(self, requested_id: str, *, tenant: str) -> str:
        """Return the id of the call that a model has lately asked for so, in a run of this tenant; "" for none."""
        found = await self._client.get(requested_key(self._keys, tenant, requested_id))
        return text_of(cast("bytes", found)) if found else ""


def requested_key(keys: Keys, tenant: str, requested_id: str) -> str:
    """Return where it is noted which call a model has asked for under an id of its own."""
    return keys.requested(hashlib.sha256(f"{tenant}\0{requested_id}".encode()).hexdigest()[:16])


def calls_named(keys: Keys, run: Run, event: RunStarted | RunEvent) -> Mapping[str, str]:
    """Return what an event names of calls: where each is noted, and the call's id."""
    if not isinstance(event, ModelReplied) or not event.message.tool_calls:
        return NOBODY
    return {
        requested_key(keys, run.terms.tenant, request.id): call_id(run.run_id, run.turn, place)
        for place, request in enumerate(event.message.tool_calls)
    }


def noted(run_id: str, tenant: str) -> str:
    """Return what a run is noted as in the lists of all, as `trim_runs.lua` has it."""
    return f"{run_id}\0{tenant}" if tenant else run_id
