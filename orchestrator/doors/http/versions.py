"""Versions of tools over HTTP: which are live, and which share of new runs gets which. For the scope `admin`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from pydantic import ConfigDict, Field
from starlette.responses import Response

from toolfleet.calls import MAX_VERSION
from toolfleet.orchestrator.doors.http.access import Admin
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.fleet.version_shares import VersionShare
from toolfleet.orchestrator.fleet.versions import VersionsStanding
from toolfleet.orchestrator.run.limits import WholeNumber

router = APIRouter(prefix="/v1/versions", tags=["versions"], route_class=JsonRoute)

SAID: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ProblemDetails, "description": "Nothing was said of this tool, or its name is none"}
}


class ShareOfRuns(RunBody):
    """Which share of new runs gets a version."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": 2, "share": 0.1}]})

    version: WholeNumber = Field(ge=1, le=MAX_VERSION)
    share: float = Field(strict=True, ge=0, le=1, allow_inf_nan=False)


@router.get("")
async def list_versions(_grant: Admin, door: Through) -> list[VersionsStanding]:
    """List the tools that have versions, with what is said of them and what came of their calls."""
    return list(await door.orchestrator.versions.list())


@router.put("/{tool}", responses=SAID)
async def share(tool: str, grant: Admin, door: Through, said: Annotated[ShareOfRuns, Body()]) -> VersionShare:
    """Give a share of new runs one version of a tool, also before its first worker lives."""
    return await door.orchestrator.versions.share(tool, said.version, said.share, by=_who(grant))


@router.post("/{tool}/abandon", responses=SAID)
async def abandon(tool: str, grant: Admin, door: Through) -> VersionShare:
    """Give no new run the version that a share was said of."""
    return await door.orchestrator.versions.abandon(tool, by=_who(grant))


@router.delete("/{tool}", responses=SAID, status_code=HTTPStatus.NO_CONTENT, response_class=Response)
async def settle(tool: str, _grant: Admin, door: Through) -> None:
    """Say nothing more of a tool's versions: new runs get the highest."""
    await door.orchestrator.versions.settle(tool)


def _who(grant: Grant) -> str:
    return f"key of {grant.subject}" if grant.subject else "the HTTP API"
