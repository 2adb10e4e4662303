"""OpenAI's Batch API lines: `custom_id` and the body of a Chat Completions request in, the completion out.

Pure. Tools are taken by name: the fleet's own specs are what the model sees. What becomes of the other fields is as
at `POST /v1/chat/completions` (`chat_fields`), and the member `toolfleet` takes every option of a run: a field that
is not served is refused with its line, since a silent difference would be worse.
https://platform.openai.com/docs/api-reference/batch/request-input
"""

from __future__ import annotations

from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.batch.records import (
    LineFigures,
    LineQuestion,
    RefusedLine,
    Unreadable,
    complaint,
    count_in,
)
from toolfleet.orchestrator.models.chat_content import Content, NotTaken, content_of
from toolfleet.orchestrator.models.chat_fields import (
    MESSAGE,
    REQUEST,
    answer_schema,
    finish_reason,
    passed_on,
    refusal_told,
    refused_fields,
)
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.run.value import Run

URL: Final = "/v1/chat/completions"

ID_PREFIX: Final = "batch_req_"
REFUSED_PREFIX: Final = "batch_req_line_"


class _Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Function(_Foreign):
    name: str
    arguments: str = ""


class _Call(_Foreign):
    id: str
    function: _Function


class _Message(_Foreign):
    model_config = ConfigDict(extra="allow", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[dict[str, Any], ...] | None = None
    tool_calls: tuple[_Call, ...] | None = None
    tool_call_id: str = ""
    name: str | None = None
    refusal: str | None = None


class _Tool(_Foreign):
    type: Literal["function"] = "function"
    function: _Function


class _Body(_Foreign):
    model: str
    messages: tuple[_Message, ...]
    tools: tuple[_Tool, ...] | None = None
    toolfleet: AskedTerms = AskedTerms()


class _Line(_Foreign):
    custom_id: StrictStr
    method: Literal["POST"] = "POST"
    url: str = URL
    body: _Body


def read(fields: dict[str, Any], *, model: str | None) -> LineQuestion:
    """What the line asks. Without `tools` the model is offered none. Raises Unreadable."""
    if "custom_id" not in fields:
        raise Unreadable('no "custom_id"')
    try:
        line = _Line.model_validate(fields)
    except ValidationError as error:
        raise Unreadable(complaint(error, _Line)) from None
    if line.url != URL:
        raise Unreadable(f"only {URL} is served, not {line.url}")
    if model is not None and line.body.model != model:
        raise Unreadable(f"asks for the model {line.body.model!r}, and {model!r} answers; --any-model lets it")
    if not line.body.messages:
        raise Unreadable("no messages")
    for _, told in refused_fields(fields["body"], REQUEST):
        raise Unreadable(told)
    return LineQuestion(line.custom_id, _messages(line.body.messages), _options(line.body, fields["body"]))


def _options(body: _Body, sent: dict[str, Any]) -> RunOptions:
    """How the line's run is run; what OpenAI has a field for counts before our own member."""
    options = options_given(body.toolfleet)
    for_model = {name: value for name, value in passed_on(sent).items() if name != "toolfleet"}
    if body.tools is not None:
        options["tools"] = tuple(tool.function.name for tool in body.tools)
    if for_model.get("tool_choice") == "none":
        del for_model["tool_choice"]
        options["tools"] = ()
    if for_model:
        options["model_options"] = {**body.toolfleet.model_options, **for_model}
    if body.toolfleet.output_schema is None and (schema := answer_schema(for_model)) is not None:
        options["output_schema"] = schema
    return options


def _messages(messages: tuple[_Message, ...]) -> tuple[Message, ...]:
    read: list[Message] = []
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        said, name = _content(message, f"messages[{place}]"), message.name or ""
        match message.role:
            case "system" | "developer":
                read.append(SystemMessage(content=said.text, name=name))
            case "user":
                read.append(UserMessage(content=said.text, name=name, images=tuple(said.images)))
            case "assistant":
                calls = message.tool_calls or ()
                names |= {call.id: call.function.name for call in calls}
                requested = tuple(
                    RequestedCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                    for call in calls
                )
                refusal = said.refusal or message.refusal or ""
                read.append(AssistantMessage(content=said.text, refusal=refusal, name=name, tool_calls=requested))
            case "tool":
                if message.tool_call_id not in names:
                    raise Unreadable(f"a tool message answers the call {message.tool_call_id!r}, which nobody made")
                tool = names[message.tool_call_id]
                read.append(ToolMessage(tool_call_id=message.tool_call_id, name=tool, content=said.text))
    return tuple(read)


def _content(message: _Message, where: str) -> Content:
    for _, told in refused_fields(message.model_extra or {}, MESSAGE):
        raise Unreadable(f"{where}: {told}")
    try:
        return content_of(message.content, message.role, f"{where}.content")
    except NotTaken as refused:
        raise Unreadable(str(refused)) from None


# --- output ---------------------------------------------------------------------------------------------------------


def written(custom_id: str | int, run: Run) -> bytes:
    """The output of a line whose run has ended."""
    if run.state is not State.DONE:
        return _failed(custom_id, ID_PREFIX + run.run_id, f"run_{run.state.value}", run.reason or "")
    refusal = refusal_told(run.incomplete, run.refusal)
    completion = {
        "id": f"chatcmpl-{run.run_id}",
        "object": "chat.completion",
        "created": int(run.started_unix_s),
        "model": run.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": run.answer or "",
                    "refusal": refusal,
                },
                "logprobs": None,
                "finish_reason": finish_reason(run.incomplete, run.refusal),
            }
        ],
        "usage": {
            "prompt_tokens": run.usage.input_tokens,
            "completion_tokens": run.usage.output_tokens,
            "total_tokens": run.usage.total_tokens,
        },
    }
    response = {"status_code": 200, "request_id": run.run_id, "body": completion}
    return orjson.dumps(
        {"id": ID_PREFIX + run.run_id, "custom_id": custom_id, "response": response, "error": None},
    )


def written_unbegun(custom_id: str | int, run_id: str, reason: str) -> bytes:
    """The output of a line whose run could not begin."""
    return _failed(custom_id, ID_PREFIX + run_id, "run_not_begun", reason)


def written_refused(refused: RefusedLine) -> bytes:
    """The output of a line that cannot be asked; always the same for the same line."""
    return _failed(refused.id, f"{REFUSED_PREFIX}{refused.line}", "invalid_line", refused.reason)


def _failed(custom_id: str | int | None, id_: str, code: str, message: str) -> bytes:
    error = {"code": code, "message": message}
    return orjson.dumps({"id": id_, "custom_id": custom_id, "response": None, "error": error})


def is_ok(fields: dict[str, Any]) -> bool:
    """Whether a line of output has an answer."""
    return fields.get("error") is None


def figures_of(fields: dict[str, Any]) -> LineFigures:
    """What a line of output says of its run's cost."""
    response = fields.get("response")
    body = response.get("body") if isinstance(response, dict) else None
    usage = body.get("usage") if isinstance(body, dict) else None
    return LineFigures(
        usage=Usage(input_tokens=count_in(usage, "prompt_tokens"), output_tokens=count_in(usage, "completion_tokens"))
    )


def run_id_of(fields: dict[str, Any]) -> str | None:
    """The run that a line of output tells of; None for a refused line. Raises Unreadable for anything else."""
    id_ = fields.get("id")
    if not isinstance(id_, str) or not id_.startswith(ID_PREFIX):
        raise Unreadable("not a line of this batch's output")
    return None if id_.startswith(REFUSED_PREFIX) else id_.removeprefix(ID_PREFIX)
