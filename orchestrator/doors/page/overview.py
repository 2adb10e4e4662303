"""The first page: how the fleet stands, and what it is at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page.live import told
from toolfleet.orchestrator.doors.page.overviews import values_of
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.state import PageState, page_of

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]


@router.get("/")
async def overview(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Show the queues, the workers and the newest runs."""
    look = await shared.looks.newest()
    return await page(request, "overview.html", **await values_of(look, grant, door))


@router.get("/overview/live")
async def live(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of it."""
    hold_listener(door, grant, request)
    return EventStream(door, told(request, door, shared.overviews.follow(grant)))
