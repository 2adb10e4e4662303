"""Handles over HTTP: how a slow call stands, its end waited for, its cancel, and its completion from another system."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from toolfleet import jobs
from toolfleet.jobs import Completion
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import CallResult, Completed, HandlesWanted
from toolfleet.orchestrator.doors.http.runs import Through, json_of
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.status.handles import Status

router = APIRouter(prefix="/v1/handles", tags=["handles"], route_class=JsonRoute)

UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such handle"}}

MAX_WAIT_S: Final = 60.0


class HandlesStanding(BaseModel):
    """The handles of a tenant."""

    handles: list[Status]
    after: str | None = Field(
        description="What the next page is asked for with; null behind the last handle. Where only open ones are asked "
        "for, a page may have fewer than `limit` and still not be the last."
    )


@router.get("")
async def list_handles(grant: Reader, door: Through, wanted: Annotated[HandlesWanted, Query()]) -> HandlesStanding:
    """List the tenant's handles, those first that are kept longest, and tell how their calls stand."""
    found = await door.looking.handles.page(
        tenant=grant.tenant, limit=wanted.limit, after=wanted.after, only_open=wanted.open
    )
    return HandlesStanding(handles=found.handles, after=found.after or None)


@router.get("/{handle}", response_model=Status, responses=UNKNOWN)
async def show(
    handle: str,
    grant: Reader,
    door: Through,
    request: Request,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT_S, allow_inf_nan=False, description="Wait so many seconds for the result.")
    ] = 0.0,
) -> Response:
    """Tell how the call of a handle stands; with `wait`, as soon as it has ended."""
    asked = door.orchestrator.task(handle, wait_s=min(wait, door.options.max_wait_s), tenant=grant.tenant)
    status = await unless_left(request, asked)
    headers = {} if status.poll_after_s is None else {"retry-after": str(int(status.poll_after_s))}
    return json_of(status, headers=headers)


@router.post("/{handle}/cancel", response_model=Status, responses=UNKNOWN)
async def cancel(handle: str, grant: Runner, door: Through) -> Response:
    """Cancel the call of a handle, queued, running or elsewhere, and tell how it ended."""
    return json_of(await door.orchestrator.cancel_task(handle, tenant=grant.tenant, by=grant.who))


@router.post(
    "/{call_id}/complete",
    responses={
        403: {"model": ProblemDetails, "description": "The address was not given out by this fleet"},
        404: {"model": ProblemDetails, "description": "No job waits for this call"},
        409: {"model": ProblemDetails, "description": "The call has ended already"},
        410: {"model": ProblemDetails, "description": "The address has expired, with its call"},
    },
)
async def complete(
    call_id: str,
    door: Through,
    result: Annotated[
        CallResult,
        Body(
            openapi_examples={
                "done": {"value": {"type": "returned", "content": "42"}},
                "failed": {"value": {"type": "failed", "kind": "error", "message": "no such file"}},
            }
        ),
    ],
    expires: Annotated[int, Query(ge=0, le=2**53)],
    signature: Annotated[str, Query(max_length=128)],
) -> Completed:
    """End a job that runs in another system. Its address is signed, and all that is asked for: `ctx.callback_url`."""
    door.seal.check_callback(call_id, expires, signature)
    if time.time() > expires:
        raise Problem(HTTPStatus.GONE, "this address has expired, with its call")
    match await jobs.complete(door.client, door.settings, door.seal, call_id, result):
        case Completion.COMPLETED:
            return Completed(call_id=call_id)
        case Completion.ALREADY:
            raise Problem(HTTPStatus.CONFLICT, f"call {call_id} has ended already; this result was dropped")
        case _:
            raise Problem(HTTPStatus.NOT_FOUND, f"no job waits for call {call_id}")
