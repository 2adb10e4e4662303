"""`POST /v1/chat/completions`: one run for one request. The fleet's tools run here, the client's come back to it.

Stateless as OpenAI's: the client sends the whole conversation each time. A repeat of a request joins the run of the
first (`joining.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem, openai_error, problem_of
from toolfleet.orchestrator.doors.http.runs import Through, hold_listener, tools_for
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.doors.openai.approvals import within_patience
from toolfleet.orchestrator.doors.openai.completions import (
    awaiting,
    completion,
    content_of,
    ending_of,
    is_one_value,
    refusal_of,
    told_by_provider,
)
from toolfleet.orchestrator.doors.openai.endings import must_have_worked, problem_of_run
from toolfleet.orchestrator.doors.openai.hidden_turns import with_hidden_turns
from toolfleet.orchestrator.doors.openai.histories import must_be_whole
from toolfleet.orchestrator.doors.openai.joining import Attended, begin_or_join
from toolfleet.orchestrator.doors.openai.model_list import must_be_asked_here
from toolfleet.orchestrator.doors.openai.openai_records import (
    ChatRequest,
    chunk,
    data_line,
    tool_calls_of,
    usage_of,
)
from toolfleet.orchestrator.doors.openai.shown import Changed, Shown
from toolfleet.orchestrator.errors import OrchestratorClosed
from toolfleet.orchestrator.models.chat_fields import answer_schema
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.run.updates import CallAwaitsApproval, ReplyBegan, RunEnded, RunUpdate, TextArrived
from toolfleet.orchestrator.run.value import Run
from toolfleet.tool import ToolSpec

DONE: Final = b"data: [DONE]\n\n"
STOPPING: Final = data_line({"error": openai_error(problem_of(OrchestratorClosed("this server stops: ask again")))})
"""Else a client would take what it has for the whole."""

router = APIRouter(prefix="/v1/chat", tags=["openai"], route_class=JsonRoute)

COMPLETED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A completion or, with `stream`, its pieces as server-sent events",
        "content": {
            "application/json": {
                "example": {
                    "id": "chatcmpl-9f8a2c51d03e4b67",
                    "object": "chat.completion",
                    "choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
                }
            },
            "text/event-stream": {"schema": {"type": "string"}},
        },
    },
    404: {"description": "There is no such model here, or its provider does not have it"},
    409: {"description": "The run that this request has begun before is not stored any more"},
    424: {
        "description": "The run has failed after it had sent calls, which it would send again, or a person's approval "
        "was waited for too long"
    },
    502: {"description": "The model could not be asked"},
}


@router.post("/completions", response_class=Response, responses=COMPLETED)
async def complete(asked: ChatRequest, grant: Runner, door: Through, request: Request) -> Response:
    """Answer a conversation. Tools that you declare come back as tool calls; the fleet's are run before you hear."""
    must_be_asked_here(door, asked.model)
    must_be_whole(asked.messages)
    messages = await with_hidden_turns(door, grant, asked.conversation())
    options = await options_of(
        door, grant, asked.toolfleet, client_tools=asked.client_tools(), model_options=asked.model_options()
    )
    if asked.stream:
        hold_listener(door, grant, request)
    attended = await begin_or_join(door, grant, request, messages, options)
    if asked.stream:
        # What keeps the model from saying anything is told by a status, not in a stream.
        await attended.first_news(request)
        with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        is_checked = is_one_value(options.get("output_schema"), options.get("model_options", {}))
        pieces = _streamed(door, attended, with_usage=with_usage, is_checked=is_checked)
        return EventStream(door, pieces, headers=attended.headers, farewell=lambda: STOPPING)
    run = await end_of(door, attended, request)
    must_have_worked(run)
    return Response(orjson.dumps(completion(run)), media_type="application/json", headers=attended.headers)


async def options_of(
    door: Door,
    grant: Grant,
    asked: AskedTerms,
    *,
    client_tools: tuple[ToolSpec, ...],
    model_options: dict[str, Any],
) -> RunOptions:
    """Return the options of a request's run. OpenAI's own fields count before our member. Raises Problem."""
    options = options_given(asked)
    model_options = {**asked.model_options, **model_options}
    options["client_tools"] = _joined(client_tools, asked.client_tools)
    if model_options.get("tool_choice") == "none":
        del model_options["tool_choice"]
        options["tools"] = options["client_tools"] = ()
    else:
        options["tools"] = await tools_for(grant, asked.tools, door)
    options["model_options"] = model_options
    if asked.output_schema is None:
        options["output_schema"] = answer_schema(model_options)
    options["tenant"], options["subject"], options["by"] = grant.tenant, grant.subject, grant.who
    return options


def _joined(first: Sequence[ToolSpec], more: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    names = {spec.name for spec in first}
    return (*first, *(spec for spec in more if spec.name not in names))


async def end_of(door: Door, attended: Attended, request: Request) -> Run:
    """Return the run of a request once it has ended. Raises Problem when its client hangs up, or a person is away."""
    return await unless_left(request, _end_of(within_patience(door, attended.run_id, attended.updates())))


async def _end_of(updates: AsyncGenerator[RunUpdate, None]) -> Run:
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, RunEnded):
                return update.run
    raise AssertionError("the updates of a run end with RunEnded")


async def _streamed(
    door: Door, attended: Attended, *, with_usage: bool, is_checked: bool
) -> AsyncGenerator[bytes, None]:
    run_id = attended.run_id

    def piece(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        return data_line({**chunk(run_id, door.model, delta, reason), **more})

    yield piece({"role": "assistant", "content": ""})
    async with aclosing(within_patience(door, run_id, attended.updates())) as updates:
        try:
            async for news in _texts(updates, is_checked=is_checked):
                if isinstance(news, str):
                    yield piece({"content": news})
                elif isinstance(news, CallAwaitsApproval):
                    yield piece({}, **awaiting(news))
                else:
                    run = news
        except (Problem, Changed) as error:
            problem = error if isinstance(error, Problem) else _changed(attended)
            yield data_line({"error": {**openai_error(problem), **problem.members}})
            return
    if run.state is not State.DONE:
        yield data_line({"error": openai_error(problem_of_run(run))})
        return
    calls = [{"index": index, **call} for index, call in enumerate(tool_calls_of(run.handed_over))]
    if calls:
        yield piece({"tool_calls": calls})
    if refusal := refusal_of(run):
        yield piece({"refusal": refusal})
    yield piece({}, ending_of(run), **told_by_provider(run))
    if with_usage:
        yield data_line({**chunk(run_id, door.model, {}), "choices": [], "usage": usage_of(run.usage)})
    yield DONE


def _changed(attended: Attended) -> Problem:
    attended.answered()  # its client has what it can have; the run goes on, and has the answer
    run_id = attended.run_id
    return Problem(
        HTTPStatus.BAD_GATEWAY,
        f"the model of run {run_id} began its reply anew, and says something else than was shown: forget that. The run "
        f"goes on; GET /v1/runs/{run_id} has its answer, and so has this request with the same Idempotency-Key",
        code="answer-changed",
    )


async def _texts(
    events: AsyncIterator[RunUpdate], *, is_checked: bool
) -> AsyncIterator[str | CallAwaitsApproval | Run]:
    """Yield the model's text as it comes, turns apart from one another, what waits for a person, and the run at last.

    An answer in JSON comes whole at the end: what does not fit a schema is asked for again, and must not be read.
    Raises Changed when what was yielded does not stand any more.
    """
    shown = Shown()
    async for event in events:
        match event:
            case ReplyBegan():
                shown.begin_reply(event.attempt)
            case TextArrived() if not is_checked and (text := shown.add(event.text)):
                yield text
            case CallAwaitsApproval():
                yield event
            case RunEnded():
                if event.run.state is State.DONE and (rest := shown.rest(content_of(event.run))):
                    yield rest
                yield event.run
