"""One call: what it was asked, what became of it, and who had it when."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from toolfleet.calls import run_of
from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import HEADERS, page
from toolfleet.orchestrator.doors.page.run_sight import told_of
from toolfleet.orchestrator.doors.page.runs import Shared
from toolfleet.orchestrator.doors.page.state import PageState, shows_payloads
from toolfleet.orchestrator.status.overview import CallStanding

router = APIRouter(include_in_schema=False)


@router.get("/calls/{call_id}")
async def call(request: Request, call_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Show a call."""
    standing = await _seen(call_id, grant, door, shared)
    return await page(request, "call.html", call=standing, with_payloads=shows_payloads(grant), told=told_of(standing))


@router.get("/calls/{call_id}/arguments")
async def arguments(call_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Return a call's arguments as they are stored, byte for byte."""
    return _plain((await _seen(call_id, grant, door, shared)).arguments, grant)


@router.get("/calls/{call_id}/result")
async def result(call_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Return a call's result as it is stored, byte for byte."""
    return _plain(told_of(await _seen(call_id, grant, door, shared)), grant)


async def _seen(call_id: str, grant: Grant, door: Door, shared: PageState) -> CallStanding:
    await door.must_see(run_of(call_id), grant)
    return await shared.sights.overview.call(call_id)


def _plain(text: str, grant: Grant) -> Response:
    if not shows_payloads(grant):
        detail = f"hidden ({len(text.encode())} bytes): this needs a key with the scope payloads"
        raise Problem(HTTPStatus.FORBIDDEN, detail)
    return PlainTextResponse(text, headers=HEADERS)
