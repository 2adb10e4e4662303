"""Slow calls: those that go on by themselves, here or in another system, and one of them by its handle."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http import handles as http_handles
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
from toolfleet.orchestrator.doors.page.wording import segment

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]


@router.get("/jobs/{handle}")
async def job(request: Request, handle: str, grant: Reader, door: Through) -> Response:
    """Show how the call of a handle stands."""
    return await page(request, "job.html", **await _values(handle, grant, door))


@router.get("/jobs/{handle}/live")
async def live(request: Request, handle: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of it."""
    await door.orchestrator.task(handle, tenant=grant.tenant)
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        values = await _values(handle, grant, door)
        return {"job": fragment("pieces/job.html", grant=grant, **values)}, values["status_"].is_terminal

    name = f"job {handle} of {grant.tenant} {grant.may(Scope.RUN)}"
    pieces = shared.live_runs.follow(name, with_payloads=shows_payloads(grant), render=render, is_of_run=False)
    return EventStream(door, told(request, door, pieces))


@router.post("/jobs/{handle}/cancel")
async def cancel(handle: str, grant: Runner, door: Through) -> Response:
    """Cancel the call of a handle."""
    await http_handles.cancel(handle, grant, door)
    return RedirectResponse(f"/jobs/{segment(handle)}", status_code=HTTPStatus.SEE_OTHER)


async def _values(handle: str, grant: Grant, door: Door) -> dict[str, Any]:
    status = await door.orchestrator.task(handle, tenant=grant.tenant)
    result: Any = status.result
    text = "" if result is None else result.content if result.type == "returned" else result.message
    return {"handle": handle, "status_": status, "told": text if shows_payloads(grant) else veiled(text)}
