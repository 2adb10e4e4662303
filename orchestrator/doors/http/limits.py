"""Limits over HTTP: what tools declare, what people have said of that, and saying it. For the scope `admin`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query
from pydantic import Field
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Admin
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.fleet.limits import MAX_PAUSE_S, AuditEntry, LimitsStanding, Override, Share

router = APIRouter(prefix="/v1/limits", tags=["limits"], route_class=JsonRoute)

MAX_ENTRIES: Final = 1000

SAID: Final[dict[int | str, dict[str, Any]]] = {
    422: {"model": ProblemDetails, "description": "No live worker serves the tool, or it has no such limit"}
}

Key = Annotated[
    str, Query(max_length=200, description='The limit of one key alone, as the list names it: "tenant=acme".')
]


class LimitRequest(RunBody):
    """Other numbers than a tool declares; what is left out stays as it is."""

    rate: str | None = Field(default=None, max_length=40, examples=["10/s", "600/min"])
    burst: int | None = Field(default=None, strict=True)
    concurrency: int | None = Field(default=None, strict=True)


class PauseRequest(RunBody):
    """How long no call of a tool starts; without it, until somebody says otherwise."""

    for_s: float | None = Field(default=None, strict=True, gt=0, le=MAX_PAUSE_S, examples=[60])


class ShareRequest(RunBody):
    """A tenant's share of the queues; what is left out stays as it is."""

    weight: float | None = Field(default=None, strict=True, gt=0, allow_inf_nan=False, examples=[3])
    guaranteed: int | None = Field(default=None, strict=True)
    ceiling: int | None = Field(default=None, strict=True)


@router.get("")
async def list_limits(_grant: Admin, door: Through) -> LimitsStanding:
    """List what tools declare, what people have said otherwise, and tenants' shares."""
    return await door.orchestrator.limits.list()


@router.get("/audit")
async def audit(
    _grant: Admin, door: Through, limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 50
) -> list[AuditEntry]:
    """List who has changed what, newest first."""
    return list(await door.orchestrator.limits.audit(limit))


@router.patch("/tools/{tool}", responses=SAID)
async def set_limit(
    tool: str, grant: Admin, door: Through, said: Annotated[LimitRequest, Body()], key: Key = ""
) -> Override:
    """Let other numbers hold than a tool declares."""
    return await door.orchestrator.limits.set(tool, key=key, by=_who(grant), **said.model_dump())


@router.post("/tools/{tool}/pause", responses=SAID)
async def pause(
    tool: str, grant: Admin, door: Through, said: Annotated[PauseRequest | None, Body()] = None, key: Key = ""
) -> Override:
    """Let no call of a tool start. What runs goes on."""
    for_s = None if said is None else said.for_s
    return await door.orchestrator.limits.pause(tool, key=key, for_s=for_s, by=_who(grant))


@router.post("/tools/{tool}/resume", responses=SAID)
async def resume(tool: str, grant: Admin, door: Through, key: Key = "") -> Override:
    """Let calls of a tool start again."""
    return await door.orchestrator.limits.resume(tool, key=key, by=_who(grant))


@router.delete("/tools/{tool}", responses=SAID, status_code=HTTPStatus.NO_CONTENT, response_class=Response)
async def reset(tool: str, grant: Admin, door: Through, key: Key = "") -> None:
    """Let hold again what a tool declares."""
    await door.orchestrator.limits.reset(tool, key=key, by=_who(grant))


@router.patch("/tenants/{tenant}", responses=SAID)
async def set_tenant(tenant: str, grant: Admin, door: Through, said: Annotated[ShareRequest, Body()]) -> Share:
    """Say what a tenant's share of the queues is."""
    return await door.orchestrator.limits.set_tenant(tenant, by=_who(grant), **said.model_dump())


@router.delete("/tenants/{tenant}", responses=SAID, status_code=HTTPStatus.NO_CONTENT, response_class=Response)
async def reset_tenant(tenant: str, grant: Admin, door: Through) -> None:
    """Let a tenant have the share that everybody has."""
    await door.orchestrator.limits.reset_tenant(tenant, by=_who(grant))


def _who(grant: Grant) -> str:
    return f"key of {grant.subject}" if grant.subject else "the HTTP API"
