"""`POST /agui`: a run as an agent of AG-UI. Where the protocol's package is missing, it is said that it is."""

from __future__ import annotations

from http import HTTPStatus
from importlib.util import find_spec
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Header, Request
from pydantic import WithJsonSchema
from starlette.responses import Response

from toolfleet.orchestrator.doors.agui.described import ASKED
from toolfleet.orchestrator.doors.http.access import Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails, extra_missing
from toolfleet.orchestrator.doors.http.runs import Through

PATH: Final = "/agui"
MOST_DIGITS: Final = 18

router = APIRouter(tags=["ag-ui"], route_class=JsonRoute)

FOLLOWED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The run's events as AG-UI has them, server-sent; the id of each can be sent as `Last-Event-ID`",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 0\ndata: {"type":"RUN_STARTED","threadId":"t1","runId":"r1"}\n\n',
            }
        },
    },
    404: {"model": ProblemDetails, "description": "Something that the request names is not there"},
    409: {"model": ProblemDetails, "description": "This run of the thread was begun with another request"},
    501: {"model": ProblemDetails, "description": "This server lacks the protocol's package"},
}


@router.post(PATH, response_class=Response, responses=FOLLOWED)
async def run_agent(
    body: Annotated[dict[str, Any], Body(description="AG-UI's `RunAgentInput`"), WithJsonSchema(ASKED)],
    grant: Runner,
    door: Through,
    request: Request,
    last_event_id: Annotated[
        str,
        Header(description="The id of the last event that you have.", json_schema_extra={"pattern": r"^[0-9]{0,18}$"}),
    ] = "",
) -> Response:
    """Begin a run of a thread, find it again, or resume it; its events are the answer.

    Cut off, send the same request again: nothing is lost, and nothing is done twice.
    """
    if find_spec("ag_ui") is None:
        raise extra_missing("AG-UI", "agui")
    if last_event_id and not (
        last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= MOST_DIGITS
    ):
        raise Problem(HTTPStatus.BAD_REQUEST, f"{last_event_id!r:.100} is no event's id here, which is a number")
    from toolfleet.orchestrator.doors.agui.serving import followed  # noqa: PLC0415  # an extra

    return await followed(door, grant, request, body, int(last_event_id) if last_event_id else None)
