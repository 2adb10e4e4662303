"""Runs over HTTP: begun, listed, looked at, followed, stopped, gone on with, decided about, deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing, suppress
from http import HTTPStatus
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Body, Depends, Header, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from toolfleet.call_log import CallLog
from toolfleet.calls import run_of
from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.doors.http.access import Approver, Reader, Runner, must_be_callable
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door, door_of, must_be_theirs
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.payload_wall import payloads_needed
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.quotas import Limit
from toolfleet.orchestrator.doors.http.records import (
    ApprovalRequest,
    CallsAsked,
    CancelBody,
    ForkRequest,
    GoOnRequest,
    RetryBody,
    RunAccepted,
    RunList,
    RunRequest,
    RunSummary,
    RunsWanted,
)
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.http.tail import ENTRY_ID, EventListener, Frame, event_bytes
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import (
    CallAsks,
    CallAwaitsApproval,
    CallProgressed,
    CallYielded,
    RunUpdate,
    TextArrived,
)
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.orchestrator.status.call_pages import CallPage, CallsWanted
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.trees import Branch
from toolfleet.orchestrator.store.chain import FIRST

UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such run"}}
NOT_NOW: Final[dict[int | str, dict[str, Any]]] = {
    **UNKNOWN,
    409: {"model": ProblemDetails, "description": "The run does not stand so that this could happen"},
}
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The run's events; the id of each can be sent back as `Last-Event-ID`",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 1732197432000-0\nevent: run_started\ndata: {"type":"run_started", …}\n\n',
            }
        },
    }
}

AN_EVENTS_ID: Final[dict[str, Any]] = {"pattern": f"^({ENTRY_ID.pattern})?$", "examples": [FIRST]}

LIVE: Final = (TextArrived, CallProgressed, CallYielded, CallAsks, CallAwaitsApproval)
"""Events that are not stored; they are told to whoever listens while they happen.

That a call waits for approval is stored too, and so told twice: `calls_sent`, or `approval_below` of an agent's run.
"""

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=JsonRoute)
Through = Annotated[Door, Depends(door_of)]


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    response_model=RunAccepted,
    responses={
        **STREAM,
        409: {"model": ProblemDetails, "description": "The first request with this Idempotency-Key has no answer yet"},
    },
)
async def begin(asked: RunRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Begin a run. It is stored before this answers, and goes on whatever becomes of you or of this server."""
    question, options = _question(asked), await _options(asked, grant, door, request)
    if asked.stream:
        hold_listener(door, grant, request)
    await admit(door, grant, request, options)
    if asked.model is not None and asked.model != door.model:
        run_id = await door.orchestrator.submit(question, model=asked.model, **options)
        listener = None
    elif not door.model:
        raise Problem(HTTPStatus.BAD_REQUEST, "this server has no model: name the `model` of an orchestrator elsewhere")
    else:
        listener = door.tail.listener() if asked.stream else None
        on_event = None if listener is None else _Live(listener)
        run_id = await door.orchestrator.start(question, on_event=on_event, **options)
    headers = {"location": f"/v1/runs/{run_id}"}
    if asked.stream:
        return EventStream(door, _events(door, run_id, FIRST, listener), headers=headers)
    return json_of(accepted(run_id), HTTPStatus.ACCEPTED, headers)


@router.get("")
async def list_runs(
    grant: Reader,
    door: Through,
    wanted: Annotated[RunsWanted, Query()],
) -> RunList:
    """List runs, the newest first, page by page. What begins meanwhile moves nothing."""
    page = await door.looking.pages.page(
        before=wanted.before, limit=wanted.limit, states=wanted.state, tenant=grant.tenant
    )
    return RunList(runs=[RunSummary.of(head) for head in page.heads], before=page.before or None)


@router.get("/{run_id}", response_model=Run, responses=UNKNOWN)
async def show(run_id: str, grant: Reader, door: Through) -> Response:
    """Show a run as it stands: messages, calls, answer."""
    return json_of(await _load_visible(door, run_id, grant))


@router.delete("/{run_id}", status_code=HTTPStatus.NO_CONTENT, response_class=Response, responses=UNKNOWN)
async def delete(run_id: str, grant: Runner, door: Through) -> None:
    """Delete a run. One that has not ended is cancelled first."""
    await door.must_see(run_id, grant)
    with suppress(RunNotOpen):  # then it has ended
        await door.orchestrator.cancel(run_id, "deleted", by=grant.who)
    await door.orchestrator.delete(run_id)


@router.get("/{run_id}/calls", responses=UNKNOWN)
async def calls(run_id: str, wanted: Annotated[CallsAsked, Query()], grant: Reader, door: Through) -> CallPage:
    """Tell how the calls of a run stand, in the order of asking, page by page; which failed first, which took longest.

    Their arguments and results are those of each by itself.
    """
    await door.must_see(run_id, grant)
    if wanted.error and not grant.may(Scope.PAYLOADS):
        raise payloads_needed()  # whoever may ask what a text contains, can read it
    asked = CallsWanted(wanted.limit, wanted.after, tools=wanted.tool, states=wanted.state, error=wanted.error)
    return await door.looking.overview.page(run_id, asked)


@router.get("/{run_id}/calls/{call_id}", responses=UNKNOWN)
async def call(run_id: str, call_id: str, grant: Reader, door: Through) -> CallStanding:
    """Tell all of a call: arguments, result, who has it, what it waits for, when its worker has last shown life."""
    await door.must_see(run_id, grant)
    _must_be_of(run_id, call_id)
    return await door.looking.overview.call(call_id)


@router.get("/{run_id}/calls/{call_id}/log", responses=UNKNOWN)
async def call_log(run_id: str, call_id: str, grant: Reader, door: Through) -> CallLog:
    """Tell what a call's tool has logged, attempt by attempt: the newest lines, also while it runs."""
    await door.must_see(run_id, grant)
    _must_be_of(run_id, call_id)
    return await door.looking.logs.of(call_id)


def _must_be_of(run_id: str, call_id: str) -> None:
    if run_of(call_id) != run_id:
        raise RunNotFound(f"run {run_id} has no call {call_id}")


@router.get("/{run_id}/tree", responses=UNKNOWN)
async def tree(run_id: str, grant: Reader, door: Through) -> Branch:
    """Tell what a run and the runs of its agents have used up: tokens, cost, calls, failures, branch by branch."""
    await door.must_see(run_id, grant)
    return await door.looking.trees.of(run_id)


@router.get("/{run_id}/events", response_class=Response, responses={**UNKNOWN, **STREAM})
async def events(
    run_id: str,
    grant: Reader,
    door: Through,
    request: Request,
    *,
    after: Annotated[str, Query(description="The id of the last event you have.", json_schema_extra=AN_EVENTS_ID)] = "",
    last_event_id: Annotated[
        str, Header(description="The same, as browsers send it.", json_schema_extra=AN_EVENTS_ID)
    ] = "",
) -> Response:
    """Stream the events of a run, from the beginning and as they come, until it has ended.

    After a cut, go on with `Last-Event-ID`: nothing is lost or doubled, whichever server you ask.
    """
    hold_listener(door, grant, request)  # first: whoever is refused has nothing read for them
    await door.must_see(run_id, grant)
    from_header, from_query = _entry_id(last_event_id), _entry_id(after)
    after_id = from_header if last_event_id else from_query
    return EventStream(door, _events(door, run_id, after_id))


@router.post("/{run_id}/cancel", response_model=Run, responses=NOT_NOW)
async def cancel(
    run_id: str, grant: Runner, door: Through, asked: Annotated[CancelBody | None, Body()] = None
) -> Response:
    """End a run now, and its open calls on the workers."""
    await door.must_see(run_id, grant)
    return json_of(await door.orchestrator.cancel(run_id, (asked or CancelBody()).reason, by=grant.who))


@router.post("/{run_id}/messages", status_code=HTTPStatus.ACCEPTED, response_model=Run, responses=NOT_NOW)
async def go_on(run_id: str, asked: GoOnRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Say something to a run: its model reads it before its next reply. One that has ended goes on with it.

    It is stored before this answers; `unheard` has what the model has not read yet.
    """
    run = await _load_visible(door, run_id, grant)
    if not grant.may_call_all:
        if run.terms.tools is None:
            raise Problem(HTTPStatus.FORBIDDEN, "the run may use tools that this key does not include")
        for tool in run.terms.tools:
            must_be_callable(grant, tool)
    messages = asked.question or tuple(asked.messages or ())
    if asked.question and asked.messages:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "give a question or messages, not both")
    # Of the request's Idempotency-Key, and of who asks: however often it is sent, to whichever server, it is said once.
    key = getattr(request.state, "derived_id", "")
    if (said := await _said(run_id, messages, asked, door, key=key, by=grant.who)) is not None:
        return json_of(said, HTTPStatus.ACCEPTED)
    if (await door.looking.seen.load(run_id)).run.state.is_terminal:  # else it is refused
        await door.usage.admit_run(grant, run_id, len(request.state.body))
    gone_on = await door.orchestrator.resume(run_id, messages, subject=grant.subject, by=grant.who)
    return json_of(gone_on, HTTPStatus.ACCEPTED)


async def _said(
    run_id: str, messages: str | Sequence[Message], asked: GoOnRequest, door: Door, *, key: str, by: str
) -> Run | None:
    """Say it to the run while that goes on; None for one that has ended and is to go on with it."""
    is_users = isinstance(messages, str) or all(isinstance(each, UserMessage) for each in messages)
    must_go_on = asked.interrupt or asked.if_ended == "refuse"
    if not messages or not is_users:
        if must_go_on:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say something as the user to a run that is at work")
        return None
    try:
        return await door.orchestrator.say(run_id, messages, interrupt=asked.interrupt, idempotency_key=key, by=by)
    except RunNotOpen:
        now = (await door.looking.seen.load(run_id)).run
        if asked.if_ended == "refuse" or not now.state.is_terminal:
            raise
        return None


@router.post("/{run_id}/fork", status_code=HTTPStatus.ACCEPTED, response_model=RunAccepted, responses=NOT_NOW)
async def fork(run_id: str, asked: ForkRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Begin a new run from what another one had come to after one of its turns. That one stays as it is."""
    source = await _load_visible(door, run_id, grant)
    options = await _of_another(source, grant, door, request)
    await admit(door, grant, request, options)
    begun = await door.orchestrator.fork(
        run_id, asked.question or (), at=asked.turn, model=asked.model, messages=asked.messages, **options
    )
    return json_of(accepted(begun), HTTPStatus.ACCEPTED, {"location": f"/v1/runs/{begun}"})


@router.post(
    "/{run_id}/calls/{call_id}/retry", status_code=HTTPStatus.ACCEPTED, response_model=RunAccepted, responses=NOT_NOW
)
async def retry(
    run_id: str,
    call_id: str,
    grant: Runner,
    door: Through,
    request: Request,
    *,
    asked: Annotated[RetryBody | None, Body()] = None,
) -> Response:
    """Make a call that has failed again, in a new run: it begins with the same reply, and makes only this call of it.

    Of the reply's other calls it has the results; only those that were taken back because of the failed one are made
    again, too. The first run stays as it is.
    """
    source = await _load_visible(door, run_id, grant)
    if run_of(call_id) != run_id:
        raise RunNotFound(f"run {run_id} has no call {call_id}")
    options = await _of_another(source, grant, door, request)
    await admit(door, grant, request, options)
    begun = await door.orchestrator.retry_call(call_id, force=(asked or RetryBody()).force, **options)
    return json_of(accepted(begun), HTTPStatus.ACCEPTED, {"location": f"/v1/runs/{begun}"})


@router.post("/{run_id}/approvals", response_model=Run, responses=NOT_NOW)
async def decide(run_id: str, asked: ApprovalRequest, grant: Approver, door: Through) -> Response:
    """Let a call that waits for a person's approval run, or deny it. Needs a key that includes its tool."""
    await door.must_see(run_id, grant)
    if not asked.call_id.startswith(f"{run_id}."):  # a call of its own, or of a run of one of its agents
        raise RunNotFound(f"run {run_id} has no call {asked.call_id}")
    await door.must_see(run_of(asked.call_id), grant)
    await must_be_theirs_to_decide(asked.call_id, grant, door)
    arguments = orjson.dumps(asked.arguments).decode() if isinstance(asked.arguments, dict) else asked.arguments
    approval = Approval(
        granted=asked.granted, arguments=arguments, reason=asked.reason, by=grant.who, digest=asked.digest
    )
    return json_of(await door.orchestrator.approve(asked.call_id, approval))


async def must_be_theirs_to_decide(call_id: str, grant: Grant, door: Door) -> None:
    """Raise Problem for a call of a tool that the key does not include."""
    if grant.may_call_all:
        return
    run = await door.orchestrator.get(run_of(call_id))
    tool = next((call.tool for call in run.calls if call.call_id == call_id), None)
    if tool is None:
        return  # which is refused as no call that waits
    must_be_callable(grant, tool)
    if tool not in await door.orchestrator.catalog.offered():
        # An orchestrator may run another tool for a name that it resolves itself.
        detail = f"no live worker serves {tool}, so nobody can say whether this key includes what would run"
        raise Problem(HTTPStatus.FORBIDDEN, detail, code="tool-not-allowed")


class _Live:
    """Tells one listener of the updates of a run that are not stored."""

    def __init__(self, listener: EventListener) -> None:
        self._listener = listener

    def __call__(self, event: RunUpdate) -> None:
        if isinstance(event, LIVE):
            self._listener.hear(Frame("", event_bytes(event.type, event.model_dump_json().encode())))


async def _events(
    door: Door, run_id: str, after: str, listener: EventListener | None = None
) -> AsyncGenerator[bytes, None]:
    async with aclosing(door.tail.listen(run_id, after=after, listener=listener)) as frames:
        async for frame in frames:
            yield frame.data


def accepted(run_id: str) -> RunAccepted:
    """Return what whoever begins a run is told of it."""
    url = f"/v1/runs/{run_id}"
    return RunAccepted(run_id=run_id, state=State.THINKING, url=url, events_url=f"{url}/events")


def _question(asked: RunRequest) -> str | Sequence[Message]:
    if (asked.question is None) == (asked.messages is None):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "give a question or messages, one of them")
    return asked.messages or asked.question or ()


async def _options(asked: RunRequest, grant: Grant, door: Door, request: Request) -> RunOptions:
    options = options_given(asked)
    options["tools"] = await tools_for(grant, asked.tools, door)
    options["tenant"], options["subject"], options["by"] = grant.tenant, grant.subject, grant.who
    options["run_id"] = getattr(request.state, "derived_id", None)
    return options


def hold_listener(door: Door, grant: Grant, request: Request) -> None:
    """Take a listener's place until the request is answered to its end. Raises Problem."""
    held: ExitStack = request.state.held
    held.enter_context(door.quotas.held(grant, Limit.LISTENERS))


async def admit(door: Door, grant: Grant, request: Request, options: RunOptions) -> None:
    """Count a run that is to be begun, which has an id from here on. Raises Problem."""
    options["run_id"] = run_id = options.get("run_id") or door.settings.new_run_id()
    await door.usage.admit_run(grant, run_id, len(request.state.body))


async def tools_for(grant: Grant, named: Sequence[str] | None, door: Door) -> Sequence[str] | None:
    """Return the tools of a run: those named, or all that the key includes. Raises Problem for any other."""
    if named is not None:
        for tool in named:
            must_be_callable(grant, tool)
        return named
    if grant.may_call_all:
        return None
    return [name for name in await door.orchestrator.catalog.offered() if grant.may_call(name)]


async def _of_another(source: Run, grant: Grant, door: Door, request: Request) -> RunOptions:
    """Return the options of a run that is made of another one, in the name of whoever asks. Raises Problem."""
    return {
        "tenant": grant.tenant,
        "subject": grant.subject,
        "by": grant.who,
        "tools": await tools_for(grant, source.terms.tools, door),
        "run_id": getattr(request.state, "derived_id", None),
        "asked_as": {"by": grant.who},
    }


async def _load_visible(door: Door, run_id: str, grant: Grant) -> Run:
    seen = door.looking.seen
    run = await with_approvals_below(seen, (await seen.load(run_id)).run)
    must_be_theirs(run_id, run.terms.tenant, grant)
    return run


def _entry_id(given: str) -> str:
    if not given:
        return FIRST
    if not ENTRY_ID.fullmatch(given):
        raise Problem(HTTPStatus.BAD_REQUEST, f"{given!r} is no event's id, which is two numbers, for example {FIRST}")
    return given


def json_of(record: BaseModel, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    """Make the JSON response of a record."""
    return Response(record.model_dump_json(), status_code=status.value, headers=headers, media_type="application/json")
