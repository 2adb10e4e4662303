"""What waits: calls for a person, and slow calls for their end, page by page of the lists that the API has."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.page.live import Pieces, told
from toolfleet.orchestrator.doors.page.rendering import fragment, page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.state import PageState, page_of
from toolfleet.orchestrator.doors.page.veiling import veiled_question
from toolfleet.orchestrator.status.approvals import ApprovalPage, AwaitedApproval
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.status.questions import QuestionPage

router = APIRouter(include_in_schema=False)
Shared = Annotated[PageState, Depends(page_of)]

RUNS: Final = 20
"""Runs with calls that wait, on one page."""

JOBS: Final = 50

Place = Annotated[str, Query(max_length=400)]


@router.get("/approvals")
async def approvals(
    request: Request, grant: Reader, door: Through, *, after: Place = "", asked_after: Place = ""
) -> Response:
    """Show what a person has to decide about, and what tools ask, those first that have waited longest."""
    is_first = not after and not asked_after
    values = await _waiting(grant, door, after=after, asked_after=asked_after)
    return await page(request, "approvals.html", is_first=is_first, **values)


@router.get("/approvals/live")
async def live_approvals(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of the first ones."""
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        values = await _waiting(grant, door)
        return {"waiting": fragment("pieces/waiting.html", is_first=True, grant=grant, **values)}, False

    name = f"approvals of {grant.tenant} {grant.may(Scope.APPROVE)}"
    pieces = shared.live_runs.follow(name, with_payloads=shows_payloads(grant), render=render, is_of_run=False)
    return EventStream(door, told(request, door, pieces))


@router.get("/jobs")
async def jobs(request: Request, grant: Reader, door: Through, *, after: Place = "") -> Response:
    """Show the slow calls that go on, here and in other systems."""
    return await page(request, "jobs.html", is_first=not after, **await _jobs(grant, door, after))


@router.get("/jobs/live")
async def live_jobs(request: Request, grant: Reader, door: Through, shared: Shared) -> Response:
    """Tell what changes of the first ones."""
    hold_listener(door, grant, request)

    async def render() -> tuple[Pieces, bool]:
        return {"jobs": fragment("pieces/jobs.html", is_first=True, **await _jobs(grant, door))}, False

    pieces = shared.live_runs.follow(
        f"jobs of {grant.tenant}", with_payloads=shows_payloads(grant), render=render, is_of_run=False
    )
    return EventStream(door, told(request, door, pieces))


async def _waiting(grant: Grant, door: Door, *, after: str = "", asked_after: str = "") -> dict[str, Any]:
    """Return both lists; from the second page on each has pages of its own."""
    awaited = ApprovalPage([], "")
    asked = QuestionPage([], "")
    if not asked_after:
        awaited = await door.looking.approvals.waiting(tenant=grant.tenant, limit=RUNS, after=after)
    if not after:
        asked = await door.looking.questions.waiting(tenant=grant.tenant, limit=RUNS, after=asked_after)
    shows = shows_payloads(grant)
    waiting = awaited.waiting if shows else [_veiled_approval(each) for each in awaited.waiting]
    return {
        "waiting": [(run_id, list(calls)) for run_id, calls in groupby(waiting, key=lambda each: each.run_id)],
        "questions": asked.waiting if shows else [veiled_question(each) for each in asked.waiting],
        "following": _next("/approvals", after=awaited.after),
        "more_questions": _next("/approvals", asked_after=asked.after),
    }


async def _jobs(grant: Grant, door: Door, after: str = "") -> dict[str, Any]:
    found = await door.looking.handles.page(tenant=grant.tenant, limit=JOBS, after=after, only_open=True)
    shown = found.handles if shows_payloads(grant) else [_veiled_job(each) for each in found.handles]
    return {"jobs": shown, "following": _next("/jobs", after=found.after)}


def _next(path: str, **places: str) -> str:
    return f"{path}?{urlencode(places)}" if all(places.values()) else ""


def _veiled_approval(awaited: AwaitedApproval) -> AwaitedApproval:
    hidden = {name: veiled(getattr(awaited, name)) for name in ("arguments", "title", "problem")}
    return awaited.model_copy(update=hidden)


def _veiled_job(status: Status) -> Status:
    if status.progress is None:
        return status
    progress = status.progress.model_copy(update={"message": veiled(status.progress.message)})
    return status.model_copy(update={"progress": progress})
