"""One look-up over HTTP: what an id means."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.records import RunBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.status.finding import Found

router = APIRouter(prefix="/v1/find", tags=["runs"], route_class=JsonRoute)


class FoundList(BaseModel):
    """What an id may mean: nothing, one thing, or several where it is the beginning of several."""

    found: list[Found]


class Sought(RunBody):
    """What to look for."""

    q: Annotated[str, Field(min_length=1, max_length=400)] = Field(
        description="An id: a run's (four characters suffice), a call's, that of a call by its model; or a handle."
    )


@router.get("")
async def find(sought: Annotated[Sought, Query()], grant: Reader, door: Through) -> FoundList:
    """Tell what has this id. What is not found may be another tenant's, or be kept no longer."""
    return FoundList(found=await door.looking.finder.find(sought.q, tenant=grant.tenant))
