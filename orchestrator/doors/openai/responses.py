"""`/v1/responses`: a response is a run. In the background it outlives the request, and this server.

Streaming of responses is not served; `/v1/chat/completions` streams.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Request
from pydantic import AfterValidator, ConfigDict, Field, StrictBool
from starlette.responses import Response

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through, admit
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.doors.openai.chat import options_of
from toolfleet.orchestrator.doors.openai.hidden_turns import with_hidden_turns
from toolfleet.orchestrator.doors.openai.model_list import must_be_asked_here
from toolfleet.orchestrator.doors.openai.openai_records import (
    Function,
    Lenient,
    handed_over_id,
    spec_of,
    text_of,
)
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.limits import Count
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.run.value import Run

PREFIX: Final = "resp_"

PASSED_ON: Final = ("temperature", "top_p", "tool_choice")

STATUSES: Final = {State.DONE: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}
"""What a response's status is called; a run that has not ended is in progress."""

LACKS: Final = {Incomplete.LENGTH: "max_output_tokens", Incomplete.CONTENT_FILTER: "content_filter"}
"""What the Responses API has a word for of that which an answer may lack."""

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


class ResponseTool(Function):
    """A tool of the client's, as the Responses API declares it."""

    type: Literal["function"]


class InputItem(Lenient):
    """One item of the conversation."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | list[dict[str, Any]] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[dict[str, Any]] | None = None


def _not_streamed(value: bool) -> bool:  # noqa: FBT001  # a validator's argument
    if value:
        raise ValueError("should be False: responses are not streamed")
    return value


class ResponseRequest(Lenient):
    """`POST /v1/responses`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "toolfleet-rehearsal", "input": "What is the square root of 2?", "background": True}]
        },
    )

    model: str
    input: Annotated[str, Field(min_length=1)] | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Any = None
    background: StrictBool | None = None
    stream: Annotated[StrictBool, Field(json_schema_extra={"const": False}), AfterValidator(_not_streamed)] | None = (
        None
    )
    previous_response_id: str | None = None
    max_output_tokens: Count | None = None
    toolfleet: AskedTerms = Field(
        default=AskedTerms(), description="This project's own member: every option that a run has."
    )

    def model_options(self) -> dict[str, Any]:
        """Return the options that go on to the model."""
        sent = {**(self.model_extra or {}), "tool_choice": self._choice()}
        options = {name: sent[name] for name in PASSED_ON if sent.get(name) is not None}
        return options if self.max_output_tokens is None else {**options, "max_tokens": self.max_output_tokens}

    def _choice(self) -> Any:
        """Return the choice of tools as Chat Completions writes it, where a named tool is written otherwise."""
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
            return {"type": "function", "function": {"name": choice["name"]}}
        return choice


@router.post("", response_class=Response, responses=ANSWERED)
async def create(asked: ResponseRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Answer, now or (`background`) later."""
    must_be_asked_here(door, asked.model)
    options = await options_of(
        door,
        grant,
        asked.toolfleet,
        client_tools=tuple(spec_of(tool) for tool in asked.tools or ()),
        model_options=asked.model_options(),
    )
    messages = await _conversation(door, grant, asked)
    if asked.background:
        options["run_id"] = getattr(request.state, "derived_id", None)
    await admit(door, grant, request, options)
    if asked.background:
        run_id = await door.orchestrator.start(messages, **options)
        return _answer(await door.orchestrator.get(run_id), background=True)
    return _answer(await unless_left(request, door.orchestrator.run(messages, **options)))


@router.get("/{response_id}", response_class=Response, responses=ANSWERED)
async def show(response_id: str, grant: Reader, door: Through) -> Response:
    """Show a response as it stands."""
    return _answer(await _run(door, grant, response_id), background=True)


@router.post("/{response_id}/cancel", response_class=Response, responses=ANSWERED)
async def cancel(response_id: str, grant: Runner, door: Through) -> Response:
    """Cancel a response; one that has ended stays as it is."""
    run = await _run(door, grant, response_id)
    try:
        run = await door.orchestrator.cancel(run.run_id)
    except RunNotOpen:
        run = await door.orchestrator.get(run.run_id)
    return _answer(run, background=True)


@router.delete("/{response_id}", response_class=Response, responses=ANSWERED)
async def delete(response_id: str, grant: Runner, door: Through) -> Response:
    """Delete a response."""
    run = await _run(door, grant, response_id)
    if not run.state.is_terminal:
        raise Problem(HTTPStatus.CONFLICT, f"{response_id} is in progress; cancel it first")
    await door.orchestrator.delete(run.run_id)
    return Response(
        orjson.dumps({"id": response_id, "object": "response", "deleted": True}), media_type="application/json"
    )


async def _run(door: Door, grant: Grant, response_id: str) -> Run:
    """Return the run of a response. Raises RunNotFound for one of another tenant, as for one that is not there."""
    missing = RunNotFound(f"no response {response_id} is stored")
    if not response_id.startswith(PREFIX):
        raise missing
    try:
        run = await door.orchestrator.get(response_id.removeprefix(PREFIX))
    except RunNotFound:
        raise missing from None
    if run.terms.tenant != grant.tenant:
        raise missing
    return run


async def _conversation(door: Door, grant: Grant, asked: ResponseRequest) -> list[Message]:
    items = [InputItem(content=asked.input)] if isinstance(asked.input, str) else asked.input
    said = await with_hidden_turns(door, grant, _messages(items))
    if asked.previous_response_id is not None:
        said = _after(await _run(door, grant, asked.previous_response_id), items, said)
    instructions = [] if asked.instructions is None else [SystemMessage(content=asked.instructions)]
    return [*instructions, *said]


def _after(before: Run, items: list[InputItem], said: list[Message]) -> list[Message]:
    """Return a conversation that goes on: what was said before, with answers to the calls that it ended with."""
    if not before.state.is_terminal:
        raise Problem(HTTPStatus.CONFLICT, f"{PREFIX}{before.run_id} is in progress")
    answers = {item.call_id: text_of(item.output) for item in items if item.type == "function_call_output"}
    by_request = {
        call.requested_id: answers[handed_over_id(call)]
        for call in before.handed_over
        if handed_over_id(call) in answers
    }
    past = [
        message.model_copy(update={"content": by_request[message.tool_call_id]})
        if isinstance(message, ToolMessage) and message.tool_call_id in by_request
        else message
        for message in before.messages
        if not isinstance(message, SystemMessage)
    ]
    return [*past, *(message for message in said if not isinstance(message, ToolMessage))]


def _messages(items: list[InputItem]) -> list[Message]:
    """Return the items as messages: neighbouring calls belong to one reply, and to the text right before them."""
    found: list[Message] = []
    names = {item.call_id: item.name for item in items if item.type == "function_call"}
    for item in items:
        match item.type, item.role:
            case "function_call", _:
                call = RequestedCall(id=item.call_id, name=item.name, arguments=item.arguments)
                before = found.pop() if found and isinstance(found[-1], AssistantMessage) else AssistantMessage()
                assert isinstance(before, AssistantMessage)  # noqa: S101  # for mypy
                found.append(before.model_copy(update={"tool_calls": (*before.tool_calls, call)}))
            case "function_call_output", _:
                text = text_of(item.output)
                found.append(ToolMessage(tool_call_id=item.call_id, name=names.get(item.call_id, ""), content=text))
            case _, "assistant":
                found.append(AssistantMessage(content=text_of(item.content)))
            case _, "user":
                found.append(UserMessage(content=text_of(item.content)))
            case _:
                found.append(SystemMessage(content=text_of(item.content)))
    return found


# --- what is answered -----------------------------------------------------------------------------------------------


def _answer(run: Run, *, background: bool = False) -> Response:
    is_over = run.state.is_terminal
    failed = run.state is State.FAILED
    body = {
        "id": PREFIX + run.run_id,
        "object": "response",
        "created_at": int(run.started_unix_s),
        "status": "incomplete" if run.incomplete in LACKS else STATUSES.get(run.state, "in_progress"),
        "background": background,
        "error": {"code": "server_error", "message": run.reason} if failed else None,
        "incomplete_details": {"reason": LACKS[run.incomplete]} if run.incomplete in LACKS else None,
        "instructions": None,
        "metadata": {},
        "model": run.model,
        "output": _output(run) if is_over else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": run.terms.model_options.get("temperature"),
        "tool_choice": "auto",
        "tools": [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.input_schema,
                "strict": False,
            }
            for spec in run.terms.client_tools
        ],
        "top_p": run.terms.model_options.get("top_p"),
        "usage": {
            "input_tokens": run.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": run.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": run.usage.input_tokens + run.usage.output_tokens,
        }
        if is_over
        else None,
    }
    return Response(orjson.dumps(body), media_type="application/json")


def _output(run: Run) -> list[dict[str, Any]]:
    """Return the answer as a message, and the calls that are the client's."""
    items: list[dict[str, Any]] = []
    if run.answer:
        text = {"type": "output_text", "text": run.answer, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{run.run_id}",
                "type": "message",
                "role": "assistant",
                "status": "incomplete" if run.incomplete in LACKS else "completed",
                "content": [text],
            }
        )
    for call in run.handed_over:
        call_id = handed_over_id(call)
        items.append(
            {
                "id": f"fc_{call_id}",
                "type": "function_call",
                "call_id": call_id,
                "name": call.tool,
                "arguments": call.arguments,
                "status": "completed",
            }
        )
    return items
