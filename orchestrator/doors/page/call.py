"""One call: what it was asked, what became of it, and who had it when."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from toolfleet.calls import Failed
from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.page.rendering import HEADERS, page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads, told_of
from toolfleet.orchestrator.doors.page.runs import Shared
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.store.forking import MAY_HAVE_RUN

router = APIRouter(include_in_schema=False)


@router.get("/calls/{call_id}")
async def call(request: Request, call_id: str, grant: Reader, shared: Shared) -> Response:
    """Show a call."""
    standing = await shared.sights.call(call_id, grant)
    return await page(
        request,
        "call.html",
        call=standing,
        with_payloads=shows_payloads(grant),
        told=told_of(standing),
        may_have_run=_may_have_run(standing),
        once=secrets.token_hex(8),
    )


@router.get("/calls/{call_id}/arguments")
async def arguments(call_id: str, grant: Reader, shared: Shared) -> Response:
    """Return a call's arguments as they are stored, byte for byte."""
    return _plain((await shared.sights.call(call_id, grant)).arguments, grant)


@router.get("/calls/{call_id}/result")
async def result(call_id: str, grant: Reader, shared: Shared) -> Response:
    """Return a call's result as it is stored, byte for byte."""
    return _plain(told_of(await shared.sights.call(call_id, grant)), grant)


def _may_have_run(call: CallStanding) -> bool:
    return isinstance(call.result, Failed) and call.result.kind in MAY_HAVE_RUN


def _plain(text: str, grant: Grant) -> Response:
    if not shows_payloads(grant):
        detail = f"hidden ({len(text.encode())} bytes): this needs a key with the scope payloads"
        raise Problem(HTTPStatus.FORBIDDEN, detail)
    return PlainTextResponse(text, headers=HEADERS)
