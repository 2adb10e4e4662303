"""What an id means: a run, a call, a handle. Direct look-ups, one round trip for each thing that it may be; no search.

Tells a caller of its tenant's only, and of no other that there is one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, Literal, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.errors import CallerError
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.requested import place_of, turn_of
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import HandleRecord
from toolfleet.orchestrator.store.names import RunNames
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import Settings
from toolfleet.wire import Seal

PART_CHARS: Final = 4
"""So much of a run's id suffices."""

A_CALL: Final = re.compile(r"(.+)\.(\d{1,9}\.\d{1,9})", re.DOTALL)


class Found(Record):
    """One thing that an id may mean."""

    kind: Literal["run", "call", "handle"]
    run_id: str
    """Of a call by hand, what stands before its place."""
    call_id: str = ""
    tool: str = ""
    handle: str = ""
    url: str
    """Where it is looked at."""


class Finder:
    """Finds what has an id. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, store: RunStore) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self._store = store
        self._names = RunNames(client, settings.keys)

    async def find(self, text: str, *, tenant: str) -> list[Found]:
        """Return what this is the id of; of a run, or of the run of a call, four characters suffice."""
        found = [each for each in (await self._run(text, tenant), await self._call(text, tenant)) if each]
        found = found or [each for each in (await self._handle(text, tenant), await self._asked(text, tenant)) if each]
        return found or await self._beginning_with(text, tenant)

    async def _run(self, run_id: str, tenant: str) -> Found | None:
        with suppress(CallerError, NewerVersion):
            if await self._store.tenant(run_id) == tenant:
                return _run(run_id)
        return None

    async def _call(self, call_id: str, tenant: str) -> Found | None:
        if (parts := A_CALL.fullmatch(call_id)) is None:
            return None
        run = await self._loaded(parts[1], tenant)
        return _call(run, call_id) if run else None

    async def _handle(self, handle: str, tenant: str) -> Found | None:
        key = self._keys.handle(handle)
        record = HandleRecord.opened(self._seal, cast("bytes | None", await self._client.get(key)), key)
        if record is None or record.principal != tenant:
            return None
        return Found(
            kind="handle",
            run_id=record.run_id,
            call_id=record.call_id,
            tool=record.tool,
            handle=handle,
            url=f"/v1/handles/{handle}",
        )

    async def _asked(self, requested_id: str, tenant: str) -> Found | None:
        call_id = await self._names.requested_as(requested_id, tenant=tenant)
        parts = A_CALL.fullmatch(call_id)
        run = await self._loaded(parts[1], tenant) if parts else None
        call = run and _record(run, call_id)
        return _call(run, call_id) if run and call and call.requested_id == requested_id else None

    async def _beginning_with(self, text: str, tenant: str) -> list[Found]:
        if len(text) < PART_CHARS:
            return []
        runs = [_run(run_id) for run_id in await self._names.beginning_with(text, tenant=tenant)]
        parts = A_CALL.fullmatch(text)
        if runs or parts is None or len(parts[1]) < PART_CHARS:
            return runs
        named = await self._names.beginning_with(parts[1], tenant=tenant)
        calls = [await self._call(f"{run_id}.{parts[2]}", tenant) for run_id in named]
        return [call for call in calls if call]

    async def _loaded(self, run_id: str, tenant: str) -> Run | None:
        with suppress(CallerError, NewerVersion):
            run = (await self._store.load(run_id)).run
            return run if run.terms.tenant == tenant else None
        return None


def _run(run_id: str) -> Found:
    return Found(kind="run", run_id=run_id, url=f"/v1/runs/{run_id}")


def _record(run: Run, call_id: str) -> CallRecord | None:
    """Return a call of a run, by its place."""
    turn, place = turn_of(call_id), place_of(call_id)
    own = [call for call in run.calls if call.turn == turn]
    return own[place] if 0 <= place < len(own) else None


def _call(run: Run, call_id: str) -> Found | None:
    call = _record(run, call_id)
    if call is None:
        return None
    url = f"/v1/runs/{run.run_id}/calls/{call.call_id}"
    return Found(kind="call", run_id=run.run_id, call_id=call.call_id, tool=call.tool, handle=call.handle, url=url)
