"""A stored run as an export: its history as it is believed, and the tools that live workers announce. Reads only."""

from __future__ import annotations

from collections.abc import Mapping

from toolfleet.catalog import of_tenant
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.replay.export import EventLine, Export
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.tool import ToolSpec


async def export_run(
    store: RunStore, catalog: Catalog, run_id: str, own: Mapping[str, ToolSpec] | None = None
) -> Export:
    """Return a stored run with all that was written down of it; `own` are tools that no worker announces.

    Secrets are masked, as they are in its history; what was too large for a result is named, and not in it. Raises
    RunNotFound, NewerVersion, StoreUnreachable.
    """
    stored, entries = await store.history(run_id)
    events = [EventLine(id=entry.id, event=entry.event) for entry in entries]
    tools = {**of_tenant(await catalog.offered(), stored.run.terms.tenant), **(own or {})}
    return Export.of(events, _of_run(stored.run, tools))


def _of_run(run: Run, tools: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """Return the tools that a run was offered, or has called."""
    called = {call.tool for call in run.calls}
    named = None if run.terms.tools is None else set(run.terms.tools)
    return {name: spec for name, spec in sorted(tools.items()) if named is None or name in named or name in called}
