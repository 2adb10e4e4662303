"""A run as a file, over HTTP and from the page: all that was written down of it, for replays and evaluations."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import PayloadReader
from toolfleet.orchestrator.doors.http.artifacts import HARMLESS
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.runs import UNKNOWN, Through

JSON_LINES: Final = "application/jsonl"

EXPORTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "JSON lines: the run, the tools that it was offered, its events, and what it came to",
        "content": {JSON_LINES: {"schema": {"type": "string"}}},
    },
    **UNKNOWN,
}

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/export", response_class=Response, responses=EXPORTED)
async def export(run_id: str, grant: PayloadReader, door: Through) -> Response:
    """Export a run, for `toolfleet runs replay` and `toolfleet eval`. Secrets in arguments stay masked."""
    return await exported(door, run_id, grant)


async def exported(door: Door, run_id: str, grant: Grant) -> Response:
    """Return a run as a file to be saved, with those tools that the grant includes. Raises RunNotFound."""
    await door.must_see(run_id, grant)
    found = await door.orchestrator.export(run_id)
    shown = replace(found, tools={name: spec for name, spec in found.tools.items() if grant.may_call(name)})
    body = await asyncio.to_thread("".join, shown.lines())
    name = quote(f"run-{run_id}.jsonl", safe="")
    return Response(
        body,
        media_type=JSON_LINES,
        headers={
            **HARMLESS,
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "cache-control": "no-store",
        },
    )
