"""The first page: how the fleet stands, and what it is at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page import sparkline
from toolfleet.orchestrator.doors.page.live import Pieces, told
from toolfleet.orchestrator.doors.page.looks import REMEMBERED, Look
from toolfleet.orchestrator.doors.page.rendering import fragment, page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.state import PageState, page_of
from toolfleet.orchestrator.doors.page.veiling import veiled_head

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]

NEWEST_RUNS: Final = 8


@router.get("/")
async def overview(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Show the queues, the workers and the newest runs."""
    look = await shared.looks.newest()
    return await page(request, "overview.html", **await _values(look, grant, door))


@router.get("/overview/live")
async def live(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of it."""
    hold_listener(door, grant, request)
    return EventStream(door, told(request, door, _pieces(shared, grant, door)))


async def _pieces(shared: PageState, grant: Grant, door: Door) -> AsyncGenerator[Pieces, None]:
    async with aclosing(shared.looks.follow()) as looks:
        async for look in looks:
            values = await _values(look, grant, door)
            yield {
                name: await asyncio.to_thread(fragment, f"pieces/{name}.html", **values)
                for name in ("figures", "queues", "workers", "newest-runs")
            }


async def _values(look: Look, grant: Grant, door: Door) -> dict[str, Any]:
    found = await door.looking.pages.page(limit=NEWEST_RUNS, tenant=grant.tenant)
    heads = found.heads if shows_payloads(grant) else [veiled_head(head) for head in found.heads]
    return {
        "look": look,
        "lines": {queue: _lines(look, queue) for queue in look.history},
        "heads": heads,
        "sees_fleet": grant.may(Scope.ADMIN),
    }


def _lines(look: Look, queue: str) -> dict[str, Any]:
    samples = look.history[queue]
    most = max((max(sample) for sample in samples), default=0)
    return {
        "waiting": sparkline.points([each.waiting for each in samples], most=most, room=REMEMBERED),
        "running": sparkline.points([each.running for each in samples], most=most, room=REMEMBERED),
        "most": most,
    }
