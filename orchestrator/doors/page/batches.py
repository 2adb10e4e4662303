"""Batches: how each stands, and one of them with its runs, as they come."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http import batches as http_batches
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page.live import Pieces, told
from toolfleet.orchestrator.doors.page.rendering import fragment, page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.state import PageState, page_of
from toolfleet.orchestrator.doors.page.veiling import veiled_head
from toolfleet.orchestrator.doors.page.wording import segment
from toolfleet.orchestrator.store.batches import BatchRecord, BatchState

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]
Place = Annotated[str, Query(max_length=400)]

BATCHES: Final = 50
RUNS: Final = 50

PIECES: Final = ("batch-head", "batch-runs")


@router.get("/batches")
async def batches(request: Request, grant: Reader, door: Through, *, after: Place = "") -> Response:
    """List batches, those first that are open, then those that ended last."""
    return await page(request, "batches.html", is_first=not after, **await _listed(grant, door, after))


@router.get("/batches/live")
async def live_list(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of the first ones."""
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        return {"batches": fragment("pieces/batches.html", is_first=True, **await _listed(grant, door, ""))}, False

    pieces = shared.live_runs.follow(
        f"batches of {grant.tenant}", with_payloads=shows_payloads(grant), render=render, is_of_run=False
    )
    return EventStream(door, told(request, door, pieces))


@router.get("/batches/{batch_id}")
async def batch(request: Request, batch_id: str, grant: Reader, door: Through, *, after: Place = "") -> Response:
    """Show a batch, and its runs."""
    return await page(request, "batch.html", is_first=not after, **await _values(batch_id, grant, door, after))


@router.get("/batches/{batch_id}/live")
async def live(request: Request, batch_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of it."""
    await door.looking.batches.load(batch_id, tenant=grant.tenant)
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        values = await _values(batch_id, grant, door, "")
        pieces = {name: fragment(f"pieces/{name}.html", is_first=True, **values) for name in PIECES}
        return pieces, values["batch"].state in {BatchState.DONE, BatchState.CANCELLED}

    pieces = shared.live_runs.follow(
        f"batch {batch_id} {grant.may(Scope.RUN)}", with_payloads=shows_payloads(grant), render=render, is_of_run=False
    )
    return EventStream(door, told(request, door, pieces))


@router.post("/batches/{batch_id}/cancel")
async def cancel(batch_id: str, grant: Runner, door: Through) -> Response:
    """Cancel a batch, and the runs that it has begun."""
    await http_batches.cancel(batch_id, grant, door)
    return RedirectResponse(f"/batches/{segment(batch_id)}", status_code=HTTPStatus.SEE_OTHER)


async def _listed(grant: Grant, door: Door, after: str) -> dict[str, Any]:
    found = await door.looking.batches.page(tenant=grant.tenant, limit=BATCHES, after=after)
    return {
        "batches": [_shown(each, grant) for each in found.batches],
        "following": f"/batches?{urlencode({'after': found.after})}" if found.after else "",
    }


async def _values(batch_id: str, grant: Grant, door: Door, after: str) -> dict[str, Any]:
    record = await door.looking.batches.load(batch_id, tenant=grant.tenant)
    found = await door.looking.batches.runs(record, limit=RUNS, after=after)
    query = urlencode({"after": found.after})
    return {
        "batch": _shown(record, grant),
        "may_cancel": grant.may(Scope.RUN),
        "heads": found.heads if shows_payloads(grant) else [veiled_head(head) for head in found.heads],
        "following": f"/batches/{segment(batch_id)}?{query}" if found.after else "",
    }


def _shown(record: BatchRecord, grant: Grant) -> BatchRecord:
    if shows_payloads(grant):
        return record
    return record.model_copy(update={name: veiled(getattr(record, name)) for name in ("source", "target", "reason")})
