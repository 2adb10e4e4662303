"""What waits for a person, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.records import AtMost
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.status.approvals import AwaitedApproval

router = APIRouter(prefix="/v1/approvals", tags=["runs"], route_class=JsonRoute)


class ApprovalList(BaseModel):
    """The calls that wait for a person, those first that have waited longest."""

    approvals: list[AwaitedApproval]


@router.get("")
async def list_approvals(grant: Reader, door: Through, wanted: Annotated[AtMost, Query()]) -> ApprovalList:
    """List the tenant's calls that wait for a person, of `limit` runs at most."""
    found = await door.looking.approvals.waiting(tenant=grant.tenant, limit=wanted.limit)
    return ApprovalList(approvals=found)
