"""What waits: calls for a person, and slow calls for their end, page by page of the lists that the API has."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.status.approvals import AwaitedApproval
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.status.questions import AwaitedAnswer

router = APIRouter(include_in_schema=False)

RUNS: Final = 20
"""Runs with calls that wait, on one page."""

JOBS: Final = 50

Place = Annotated[str, Query(max_length=400)]


@router.get("/approvals")
async def approvals(request: Request, grant: Reader, door: Through, *, after: Place = "") -> Response:
    """Show the calls that a person has to decide about, those first that have waited longest."""
    found = await door.looking.approvals.waiting(tenant=grant.tenant, limit=RUNS, after=after)
    waiting = found.waiting if shows_payloads(grant) else [_veiled_approval(each) for each in found.waiting]
    by_run = [(run_id, list(calls)) for run_id, calls in groupby(waiting, key=lambda each: each.run_id)]
    asked = [] if after else (await door.orchestrator.questions(tenant=grant.tenant, limit=RUNS)).waiting
    return await page(
        request,
        "approvals.html",
        waiting=by_run,
        questions=asked if shows_payloads(grant) else [_veiled_question(each) for each in asked],
        is_first=not after,
        following=_next("/approvals", found.after),
    )


@router.get("/jobs")
async def jobs(request: Request, grant: Reader, door: Through, *, after: Place = "") -> Response:
    """Show the slow calls that go on, here and in other systems."""
    found = await door.looking.handles.page(tenant=grant.tenant, limit=JOBS, after=after, only_open=True)
    shown = found.handles if shows_payloads(grant) else [_veiled_job(each) for each in found.handles]
    return await page(request, "jobs.html", jobs=shown, is_first=not after, following=_next("/jobs", found.after))


def _next(path: str, after: str) -> str:
    return f"{path}?{urlencode({'after': after})}" if after else ""


def _veiled_approval(awaited: AwaitedApproval) -> AwaitedApproval:
    hidden = {name: veiled(getattr(awaited, name)) for name in ("arguments", "title", "problem")}
    return awaited.model_copy(update=hidden)


def _veiled_question(asked: AwaitedAnswer) -> AwaitedAnswer:
    hidden = {name: veiled(getattr(asked, name)) for name in ("message", "title")}
    return asked.model_copy(update={**hidden, "answer_schema": {}})


def _veiled_job(status: Status) -> Status:
    if status.progress is None:
        return status
    progress = status.progress.model_copy(update={"message": veiled(status.progress.message)})
    return status.model_copy(update={"progress": progress})
