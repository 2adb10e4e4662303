"""Slow calls: those that go on by themselves, here or in another system, and one of them by its handle."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http import handles as http_handles
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.wording import segment

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{handle}")
async def job(request: Request, handle: str, grant: Reader, door: Through) -> Response:
    """Show how the call of a handle stands."""
    status = await door.orchestrator.task(handle, tenant=grant.tenant)
    result: Any = status.result
    told = "" if result is None else result.content if result.type == "returned" else result.message
    shown = told if shows_payloads(grant) else veiled(told)
    return await page(request, "job.html", handle=handle, status_=status, told=shown)


@router.post("/jobs/{handle}/cancel")
async def cancel(handle: str, grant: Runner, door: Through) -> Response:
    """Cancel the call of a handle."""
    await http_handles.cancel(handle, grant, door)
    return RedirectResponse(f"/jobs/{segment(handle)}", status_code=HTTPStatus.SEE_OTHER)
