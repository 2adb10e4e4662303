"""One call: what it was asked, what became of it, who had it when, and what its tool has logged."""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from toolfleet.calls import Failed, run_of
from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page.live import Pieces, told
from toolfleet.orchestrator.doors.page.rendering import HEADERS, fragment, page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads, told_of
from toolfleet.orchestrator.doors.page.runs import Shared
from toolfleet.orchestrator.doors.page.state import PageState
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.store.forking import MAY_HAVE_RUN

router = APIRouter(include_in_schema=False)

PIECES: Final = ("call-head", "call-questions", "call-result", "call-log")


@router.get("/calls/{call_id}")
async def call(request: Request, call_id: str, grant: Reader, shared: Shared) -> Response:
    """Show a call."""
    return await page(request, "call.html", **await _values(shared, call_id, grant))


@router.get("/calls/{call_id}/live")
async def live(request: Request, call_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of a call, and what its tool logs."""
    await door.must_see(run_of(call_id), grant)
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        values = await _values(shared, call_id, grant)
        return await asyncio.to_thread(_pieces, values, grant), values["call"].is_over

    name = f"{call_id} {grant.may(Scope.APPROVE)}"  # whoever may not answer is shown no form
    pieces = shared.live_runs.follow(run_of(call_id), call_id=name, with_payloads=shows_payloads(grant), render=render)
    return EventStream(door, told(request, door, pieces))


async def _values(shared: PageState, call_id: str, grant: Grant) -> dict[str, Any]:
    call = await shared.sights.call(call_id, grant)
    # Behind the call: the log of one that has ended is whole.
    log = await shared.sights.log(call_id, grant)
    return {
        "call": call,
        "log": log,
        "questions": await shared.sights.asked(call, grant),
        "with_payloads": shows_payloads(grant),
        "told": told_of(call),
        "may_have_run": _may_have_run(call),
        "once": secrets.token_hex(8),
    }


def _pieces(values: dict[str, Any], grant: Grant) -> Pieces:
    return {name: fragment(f"pieces/{name}.html", grant=grant, **values) for name in PIECES}


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
