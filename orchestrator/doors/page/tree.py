"""A run and the runs of its agents: what each branch has come to."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http import runs as http_runs
from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/runs/{run_id}/tree")
async def tree(request: Request, run_id: str, grant: Reader, door: Through) -> Response:
    """Show the tree below a run."""
    return await page(request, "tree.html", run_id=run_id, top=await http_runs.tree(run_id, grant, door))
