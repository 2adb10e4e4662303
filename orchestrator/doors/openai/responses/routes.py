"""`/v1/responses`: a response is a run. It is waited for, followed or left in the background, and asked for again.

In the background it outlives the request, and this server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import PayloadReader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.openai.chat import end_of, options_of
from toolfleet.orchestrator.doors.openai.joining import begin_or_join
from toolfleet.orchestrator.doors.openai.model_list import must_be_asked_here
from toolfleet.orchestrator.doors.openai.responses.body import response_of
from toolfleet.orchestrator.doors.openai.responses.conversation import conversation_of, input_items, stored_response
from toolfleet.orchestrator.doors.openai.responses.items import in_input
from toolfleet.orchestrator.doors.openai.responses.output import Item
from toolfleet.orchestrator.doors.openai.responses.request import (
    KEPT_UNSTORED_S,
    ResponseRequest,
    must_be_includable,
    refused,
)
from toolfleet.orchestrator.doors.openai.responses.stream import Following, until_answered
from toolfleet.orchestrator.errors import RunNotOpen
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.terms import AskedTerms

MAX_PAGE: Final = 100

router = APIRouter(prefix="/v1/responses", tags=["openai"], route_class=JsonRoute)

ANSWERED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The response as it stands",
        "content": {
            "application/json": {
                "example": {"id": "resp_9f8a2c51d03e4b67", "object": "response", "status": "completed", "output": []}
            }
        },
    }
}
FOLLOWED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The response as it stands or, with `stream`, its events as server-sent events",
        "content": {**ANSWERED[200]["content"], "text/event-stream": {"schema": {"type": "string"}}},
    }
}
LISTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A page of the items that the response was given",
        "content": {"application/json": {"example": {"object": "list", "data": [], "has_more": False}}},
    }
}

Included = Annotated[list[str] | None, Query()]
IncludedInBrackets = Annotated[list[str] | None, Query(alias="include[]", include_in_schema=False)]


@router.post("", response_class=Response, responses=FOLLOWED)
async def create(asked: ResponseRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Answer now, event by event (`stream`), or later (`background`)."""
    must_be_asked_here(door, asked.model)
    asked.must_be_served()
    conversation = await conversation_of(door, grant, asked)
    options = await _options(door, grant, asked)
    options["asked_as"] = asked.asked_as(conversation.given)
    if asked.stream:
        hold_listener(door, grant, request)
    attended = await begin_or_join(door, grant, request, conversation.messages, options)
    if asked.background:
        attended.answered()
    if asked.stream:
        following = Following(door, attended.run_id)
        # Nobody waits for one in the background: it may wait for a person as long as it takes.
        events = following.events() if asked.background else until_answered(attended, following)
        return EventStream(door, events, headers=attended.headers, farewell=following.farewell)
    run = await door.orchestrator.get(attended.run_id) if asked.background else await end_of(door, attended, request)
    return _json(response_of(run), attended.headers)


async def _options(door: Door, grant: Grant, asked: ResponseRequest) -> RunOptions:
    client_tools, terms = asked.client_tools(), asked.toolfleet
    allowed = asked.allowed_tools()
    if allowed is not None:
        client_tools = tuple(spec for spec in client_tools if spec.name in allowed)
        of_fleet = tuple(sorted(allowed - {spec.name for spec in client_tools}))
        terms = AskedTerms.model_validate({**terms.given(), "tools": of_fleet})
    options = await options_of(door, grant, terms, client_tools=client_tools, model_options=asked.model_options())
    if not asked.is_stored:
        options["keep_s"] = min(KEPT_UNSTORED_S, options.get("keep_s") or KEPT_UNSTORED_S)
    return options


@router.get("/{response_id}", response_class=Response, responses=FOLLOWED)
async def show(
    response_id: str,
    grant: PayloadReader,
    door: Through,
    request: Request,
    *,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, description="The number of the last event you have.")] = None,
    include: Included = None,
    include_in_brackets: IncludedInBrackets = None,
    include_obfuscation: bool = False,
) -> Response:
    """Show a response as it stands or, with `stream`, its events from any number on until it has ended."""
    for name in (*(include or ()), *(include_in_brackets or ())):
        must_be_includable(name)
    if include_obfuscation:
        raise refused("include_obfuscation", "events are not obfuscated here: leave it out")
    if starting_after is not None and not stream:
        raise refused("starting_after", "it says where a stream goes on: send stream=true with it")
    run = await stored_response(door, grant, response_id)
    if not stream:
        return _json(response_of(run))
    hold_listener(door, grant, request)
    following = Following(door, run.run_id)
    events = following.events(after=-1 if starting_after is None else starting_after)
    return EventStream(door, events, farewell=following.farewell)


@router.get("/{response_id}/input_items", response_class=Response, responses=LISTED)
async def list_input_items(
    response_id: str,
    grant: PayloadReader,
    door: Through,
    *,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(description="The id of the last item you have.")] = None,
    include: Included = None,
    include_in_brackets: IncludedInBrackets = None,
) -> Response:
    """List what a response was given, with the items of the stored responses that it goes on from."""
    for name in (*(include or ()), *(include_in_brackets or ())):
        must_be_includable(name)
    items = await input_items(door, grant, await stored_response(door, grant, response_id))
    return _json(_page(items if order == "asc" else items[::-1], after, limit))


def _page(items: Sequence[Item], after: str | None, limit: int) -> dict[str, Any]:
    """Return one page of items. Raises Problem for an `after` that none of them has."""
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise in_input(f"after: no item of this response has the id {after!r}")
    begins = 0 if after is None else ids.index(after) + 1
    page = items[begins : begins + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": begins + limit < len(items),
    }


@router.post("/{response_id}/cancel", response_class=Response, responses=ANSWERED)
async def cancel(response_id: str, grant: Runner, door: Through) -> Response:
    """Cancel a response; one that has ended stays as it is."""
    run = await stored_response(door, grant, response_id)
    try:
        run = await door.orchestrator.cancel(run.run_id, by=grant.who)
    except RunNotOpen:
        run = await door.orchestrator.get(run.run_id)
    return _json(response_of(run))


@router.delete("/{response_id}", response_class=Response, responses=ANSWERED)
async def delete(response_id: str, grant: Runner, door: Through) -> Response:
    """Delete a response."""
    run = await stored_response(door, grant, response_id)
    if not run.state.is_terminal:
        raise Problem(HTTPStatus.CONFLICT, f"{response_id} is in progress; cancel it first")
    await door.orchestrator.delete(run.run_id)
    return _json({"id": response_id, "object": "response", "deleted": True})


def _json(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers=headers)
