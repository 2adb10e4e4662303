"""Schedules: when each ticks next, what its newest ticks have begun, and a pause."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.schedules.records import Schedule
from toolfleet.orchestrator.schedules.shown import standing_of
from toolfleet.orchestrator.store.run_store import title_of

router = APIRouter(include_in_schema=False)

SCHEDULES: Final = 50
TICKS: Final = 5


@router.get("/schedules")
async def schedules(
    request: Request, grant: Reader, door: Through, *, after: Annotated[str, Query(max_length=400)] = ""
) -> Response:
    """List schedules, the newest first."""
    found = await door.orchestrator.schedules.list(tenant=grant.tenant, limit=SCHEDULES, after=after)
    return await page(
        request,
        "schedules.html",
        is_first=not after,
        schedules=[_shown(each, grant) for each in found.schedules],
        may_run=grant.may(Scope.RUN),
        following=f"/schedules?{urlencode({'after': found.after})}" if found.after else "",
    )


@router.post("/schedules/{schedule_id}/pause")
async def pause(schedule_id: str, grant: Runner, door: Through) -> Response:
    """Begin no runs of it any more."""
    await door.orchestrator.schedules.pause(schedule_id, tenant=grant.tenant)
    return RedirectResponse("/schedules", status_code=HTTPStatus.SEE_OTHER)


@router.post("/schedules/{schedule_id}/resume")
async def resume(schedule_id: str, grant: Runner, door: Through) -> Response:
    """Go on with its next tick."""
    await door.orchestrator.schedules.resume(schedule_id, tenant=grant.tenant)
    return RedirectResponse("/schedules", status_code=HTTPStatus.SEE_OTHER)


def _shown(schedule: Schedule, grant: Grant) -> dict[str, Any]:
    standing = standing_of(schedule)
    shows = shows_payloads(grant)
    title = title_of(standing.messages)
    return {
        "standing": standing,
        "title": title if shows else veiled(title),
        "ticks": [
            tick if shows else tick.model_copy(update={"reason": veiled(tick.reason)})
            for tick in standing.ticks[:TICKS]
        ],
    }
