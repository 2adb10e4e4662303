"""What waits for a person, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.records import SomeWanted
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.status.approvals import AwaitedApproval

router = APIRouter(prefix="/v1/approvals", tags=["runs"], route_class=JsonRoute)


class ApprovalList(BaseModel):
    """The calls that wait for a person, those first that have waited longest."""

    approvals: list[AwaitedApproval]
    after: str | None = Field(description="What the next page is asked for with; null behind the last run.")


@router.get("")
async def list_approvals(grant: Reader, door: Through, wanted: Annotated[SomeWanted, Query()]) -> ApprovalList:
    """List the tenant's calls that wait for a person, of `limit` runs at most."""
    found = await door.looking.approvals.waiting(tenant=grant.tenant, limit=wanted.limit, after=wanted.after)
    return ApprovalList(approvals=found.waiting, after=found.after or None)
