"""What waits: calls for a person, and slow calls for their end, of the newest runs that have not ended."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.runs import Shared
from toolfleet.orchestrator.doors.page.state import PageState
from toolfleet.orchestrator.doors.page.veiling import veiled_call, veiled_head
from toolfleet.orchestrator.errors import NewerVersion, RunNotFound
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.store.run_store import Head

router = APIRouter(include_in_schema=False)

RUNS: Final = 20
"""Open runs whose calls are read for one page; the others are a link away."""

LOOKED_AT: Final = 500

Waiting = list[tuple[Head, list[CallStanding]]]


@router.get("/approvals")
async def approvals(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Show the calls that a person has to decide about."""
    heads = [head for head in await _open(door, grant, State.CALLING, State.PARKED) if head.awaiting_approval]
    waiting = await _calls_of(heads[:RUNS], grant, shared, CallState.AWAITING_APPROVAL)
    return await page(request, "approvals.html", waiting=waiting, more=heads[RUNS:])


@router.get("/jobs")
async def jobs(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Show the slow calls that go on, here and in other systems."""
    heads = await _open(door, grant, State.PARKED, State.CALLING, State.WAITING, State.THINKING)
    found = await _calls_of(heads[:RUNS], grant, shared, CallState.SUBMITTED, CallState.RUNNING, CallState.QUEUED)
    slow = [(head, [call for call in calls if call.handle or call.job]) for head, calls in found]
    return await page(request, "jobs.html", waiting=[each for each in slow if each[1]], more=heads[RUNS:])


async def _open(door: Door, grant: Grant, *states: State) -> list[Head]:
    found = await door.looking.pages.page(limit=LOOKED_AT, states=states, tenant=grant.tenant)
    return found.heads if shows_payloads(grant) else [veiled_head(head) for head in found.heads]


async def _calls_of(heads: list[Head], grant: Grant, shared: PageState, *states: CallState) -> Waiting:
    found: Waiting = []
    for head in heads:
        try:
            calls = (await shared.sights.overview.run(head.run_id)).calls
        except (RunNotFound, NewerVersion):
            continue  # deleted meanwhile, or for a newer server to show: the others are shown all the same
        wanted = [call for call in calls if call.state in states]
        shown = wanted if shows_payloads(grant) else [veiled_call(call) for call in wanted]
        if shown:
            found.append((head, shown))
    return found
