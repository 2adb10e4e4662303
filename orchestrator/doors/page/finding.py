"""The search box: an id leads to what it means, by the same look-ups as in the API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.wording import segment
from toolfleet.orchestrator.status.finding import PART_CHARS, Found

router = APIRouter(include_in_schema=False)


@router.get("/find")
async def find(
    request: Request, grant: Reader, door: Through, *, q: Annotated[str, Query(max_length=400)] = ""
) -> Response:
    """Lead to the one thing that has an id, or list those that it may mean."""
    named = q.strip()
    if not named:
        return RedirectResponse("/runs", status_code=HTTPStatus.SEE_OTHER)
    found = await door.looking.finder.find(named, tenant=grant.tenant)
    if len(found) == 1:
        return RedirectResponse(place_of(found[0]), status_code=HTTPStatus.SEE_OTHER)
    status = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
    places = [(each, place_of(each)) for each in found]
    return await page(request, "find.html", status=status, named=named, found=places, least=PART_CHARS)


def place_of(found: Found) -> str:
    """Return the page of what was found."""
    if found.kind == "run":
        return f"/runs/{segment(found.run_id)}"
    return f"/calls/{segment(found.call_id)}" if found.kind == "call" else f"/jobs/{segment(found.handle)}"
