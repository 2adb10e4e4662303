"""Tools over HTTP: what live workers offer, and one call of one tool."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from starlette.responses import Response

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.catalog import of_tenant
from toolfleet.orchestrator.doors.http.access import Reader, Runner, must_be_callable, must_have
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import CallRequest, CallResult, SubmittedBody, ToolList, ToolView
from toolfleet.orchestrator.doors.http.runs import Through, json_of
from toolfleet.orchestrator.errors import ApprovalMissing, UnknownTool
from toolfleet.read_result import READ_RESULT
from toolfleet.tool import ToolSpec

router = APIRouter(prefix="/v1/tools", tags=["tools"], route_class=JsonRoute)

CALLED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "What the call came to; a call that failed is `failed` with its reason",
        "content": {"application/json": {"example": {"type": "returned", "content": "4"}}},
    },
    202: {"model": SubmittedBody, "description": "The call goes on by itself; ask with its handle"},
    404: {"model": ProblemDetails, "description": "No live worker serves this tool"},
}


@router.get("")
async def list_tools(grant: Reader, door: Through) -> ToolList:
    """List the tools that live workers serve now."""
    catalog = door.orchestrator.catalog
    offered = of_tenant(await catalog.offered(), grant.tenant)
    shown = [(name, spec) for name, spec in sorted(offered.items()) if grant.may_call(name)]
    return ToolList(tools=[ToolView.of(spec, catalog.versions.get(name, ())) for name, spec in shown])


@router.post("/{name}/call", response_model=CallResult, responses=CALLED)
async def call(
    name: str, grant: Runner, door: Through, asked: Annotated[CallRequest | None, Body()] = None
) -> Response:
    """Call a tool. Answers with its result or, when it takes longer than your patience, with a handle."""
    asked = asked or CallRequest()
    result = await called(name, asked.arguments, asked, grant, door)
    if not isinstance(result, Submitted):
        return json_of(result)
    submitted = SubmittedBody.of(result)
    headers = {"location": submitted.url, "retry-after": str(int(submitted.poll_after_s))}
    return json_of(submitted, HTTPStatus.ACCEPTED, headers)


async def called(
    name: str, arguments: Mapping[str, Any] | str, asked: CallRequest, grant: Grant, door: Door
) -> Returned | Failed | Submitted:
    """Call a tool, with the arguments or their JSON text, if the key includes it. Raises Problem."""
    if name != READ_RESULT.name:  # by which a key reads on in what it may read whole at /v1/artifacts
        must_be_callable(grant, name)
    spec = (await door.orchestrator.catalog.offered(name)).get(name)
    if spec is not None and spec.requires_approval:
        # Whoever calls it by hand decides about it: no run may be a way round, nor this a way round a run's approval.
        must_have(grant, Scope.APPROVE)
    try:
        return await door.orchestrator.call(
            name,
            arguments,
            patience_s=_patience_s(asked, spec, door),
            context=asked.context,
            timeout_s=asked.timeout_s,
            tenant=grant.tenant,
            subject=grant.subject,
            approved=grant.may(Scope.APPROVE),
        )
    except ApprovalMissing:  # since it was looked at above
        must_have(grant, Scope.APPROVE)
        raise
    except UnknownTool as error:
        raise Problem(HTTPStatus.NOT_FOUND, str(error), code="unknown-tool") from error


def _patience_s(asked: CallRequest, spec: ToolSpec | None, door: Door) -> float:
    """Return how long to wait: as asked for, or as the tool says, within what one request may wait."""
    if asked.patience_s is not None:
        return min(asked.patience_s, door.options.max_wait_s)
    own_s = None if spec is None else spec.patience_s
    return min(door.settings.patience_s if own_s is None else own_s, door.options.max_wait_s)
