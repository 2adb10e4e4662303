"""The list of runs, and one run: its conversation, and beside it its timeline, as they come."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import PayloadReader, Reader
from toolfleet.orchestrator.doors.http.exports import exported
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page.live import Pieces, told
from toolfleet.orchestrator.doors.page.rendering import fragment, page
from toolfleet.orchestrator.doors.page.run_sight import MESSAGES, ROWS, CallFilter, RunSight, shows_payloads
from toolfleet.orchestrator.doors.page.state import PageState, page_of
from toolfleet.orchestrator.doors.page.veiling import veiled_head
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_state import CallState

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]
Place = Annotated[int, Query(ge=0, le=1_000_000)]
Word = Annotated[str, Query(max_length=200)]

RUNS: Final = 50


@router.get("/runs")
async def runs(
    request: Request,
    grant: Reader,
    door: Through,
    *,
    state: Word = "",
    before: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """List runs, the newest first."""
    wanted = State(state) if state in set(State) else None
    found = await door.looking.pages.page(
        before=before, limit=RUNS, states=[wanted] if wanted else (), tenant=grant.tenant
    )
    query = urlencode({"state": wanted or "", "before": found.before})
    return await page(
        request,
        "runs.html",
        heads=found.heads if shows_payloads(grant) else [veiled_head(head) for head in found.heads],
        states=list(State),
        state=wanted,
        following=f"/runs?{query}" if found.before else "",
    )


@router.get("/runs/{run_id}")
async def run(
    request: Request,
    run_id: str,
    grant: Reader,
    shared: Shared,
    *,
    tool: Word = "",
    state: Word = "",
    text: Word = "",
) -> Response:
    """Show a run."""
    sight = await shared.sights.of(run_id, grant)
    wanted = CallFilter(tool, CallState(state) if state in set(CallState) else None, text)
    return await page(request, "run.html", **await asyncio.to_thread(_values, sight, grant, wanted))


@router.get("/runs/{run_id}/timeline")
async def timeline(
    request: Request,
    run_id: str,
    grant: Reader,
    shared: Shared,
    *,
    first: Place = 0,
    tool: Word = "",
    state: Word = "",
    text: Word = "",
) -> Response:
    """Show the next rows of a timeline."""
    sight = await shared.sights.of(run_id, grant)
    wanted = CallFilter(tool, CallState(state) if state in set(CallState) else None, text)
    return await page(request, "run_timeline.html", **await asyncio.to_thread(_values, sight, grant, wanted, first))


@router.get("/runs/{run_id}/conversation")
async def conversation(request: Request, run_id: str, grant: Reader, shared: Shared, *, first: Place = 0) -> Response:
    """Show the next messages of a conversation."""
    sight = await shared.sights.of(run_id, grant)
    values = await asyncio.to_thread(_values, sight, grant, CallFilter(), 0, first)
    return await page(request, "run_conversation.html", **values)


@router.get("/runs/{run_id}/export")
async def export(run_id: str, grant: PayloadReader, door: Through) -> Response:
    """Give a run as a file, to be replayed or evaluated."""
    return await exported(door, run_id, grant)


@router.get("/runs/{run_id}/live")
async def live(request: Request, run_id: str, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of a run."""
    await door.must_see(run_id, grant)
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        sight = await shared.sights.of(run_id, grant)
        pieces = await asyncio.to_thread(_pieces, sight, grant)
        return pieces, not sight.is_live

    pieces = shared.live_runs.follow(run_id, with_payloads=shows_payloads(grant), render=render)
    return EventStream(door, told(request, door, pieces))


def _values(sight: RunSight, grant: Grant, wanted: CallFilter, row: int = 0, message: int = 0) -> dict[str, Any]:
    rows = sight.wanted(wanted)
    return {
        "sight": sight,
        "run": sight.run,
        "has_agents": any(call.is_agents for call in sight.run.calls),
        "wanted": wanted,
        "once": secrets.token_hex(8),
        "call_states": list(CallState),
        "with_payloads": shows_payloads(grant),
        "rows": sight.drawn(rows[row : row + ROWS]),
        "more_rows": row + ROWS if len(rows) > row + ROWS else 0,
        "found": sum(each.call is not None for each in rows),
        "messages": sight.messages(message),
        "first_message": message,
        "more_messages": message + MESSAGES if len(sight.run.messages) > message + MESSAGES else 0,
    }


def _pieces(sight: RunSight, grant: Grant) -> Pieces:
    """Render what may change of a run: its head, its axis, its first rows and those of calls that are under way."""
    values = _values(sight, grant, CallFilter())
    names = ["run-head", "run-axis"]
    if not values["more_messages"]:
        names.append("messages")
    pieces = {name: fragment(f"pieces/{name}.html", **values) for name in names}
    shown = {row.key for row in sight.rows[:ROWS]}
    for row in sight.drawn([row for row in sight.rows if row.key in shown or _changes(row.call)]):
        pieces[f"row-{row.key}"] = fragment("pieces/row.html", row=row, sight=sight, run=sight.run)
    return pieces


def _changes(call: Any) -> bool:
    return call is not None and not call.is_over
