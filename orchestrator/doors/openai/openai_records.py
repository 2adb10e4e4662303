"""OpenAI's formats as far as they are served: what its clients send, and what they are answered.

What becomes of each field says `chat_fields`; none is dropped in silence. Pure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.models.chat_content import Content, NotTaken, content_of
from toolfleet.orchestrator.models.chat_fields import FUNCTION, MESSAGE, REQUEST, Decision, passed_on, refused_fields
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.tool import ToolSpec


class Lenient(BaseModel):
    """What a client sends. A field that is not known is kept, for whoever decides about it."""

    model_config = ConfigDict(extra="allow")


class Function(Lenient):
    """A function that the client performs itself."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


class FunctionTool(Lenient):
    """A tool of the client's."""

    type: Literal["function"]
    function: Function


class CalledFunction(Lenient):
    """What was called, and with what."""

    name: str
    arguments: str = "{}"


class ToolCallPart(Lenient):
    """A call that the model asked the client for, sent back by it."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Lenient):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCallPart] | None = None
    tool_call_id: str | None = None
    name: Annotated[str, Field(max_length=256)] | None = None
    refusal: str | None = None


class StreamOptions(Lenient):
    """What a stream ends with."""

    include_usage: StrictBool | None = None


class ChatRequest(Lenient):
    """`POST /v1/chat/completions`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "model": "toolfleet-rehearsal",
                    "messages": [{"role": "user", "content": "What is the square root of 2?"}],
                }
            ]
        },
    )

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[FunctionTool] | None = None
    tool_choice: Any = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    toolfleet: AskedTerms = Field(
        default=AskedTerms(), description="This project's own member: every option that a run has."
    )

    def model_options(self) -> dict[str, Any]:
        """Return the options that go on to the model. Raises Problem for one that is not served, by its name."""
        asked = self.model_extra or {}
        must_be_served(asked, REQUEST)
        streaming = self.stream_options.model_extra if self.stream_options else None
        if strange := [name for name, value in (streaming or {}).items() if value]:
            raise not_served(f"stream_options.{strange[0]} is not served here", f"stream_options.{strange[0]}")
        return passed_on({**asked, "tool_choice": self.tool_choice})

    def client_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as the model is to see them. Raises Problem for what it would not be told."""
        for place, tool in enumerate(self.tools or ()):
            for name, value in (tool.function.model_extra or {}).items():
                if value is not None:
                    param = f"tools[{place}].function.{name}"
                    raise not_served(f"{param}: a function has {', '.join(FUNCTION)}", param)
        return tuple(spec_of(tool.function) for tool in self.tools or ())

    def conversation(self) -> list[Message]:
        """Return the messages in no provider's format. Raises Problem for what has no place in it."""
        names = {call.id: call.function.name for said in self.messages for call in said.tool_calls or ()}
        return [_message(said, names, f"messages[{place}]") for place, said in enumerate(self.messages)]


def spec_of(function: Function) -> ToolSpec:
    """Return a client's function as a tool that no worker serves."""
    schema = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(
        name=function.name, description=function.description or "", input_schema=schema, strict=function.strict
    )


def must_be_served(asked: Mapping[str, Any], table: Mapping[str, Decision], where: str = "") -> None:
    """Raise Problem for the first field that is not served, by its name; `where` goes before that."""
    for name, told in refused_fields(asked, table):
        raise not_served(where + told, where + name)


def not_served(detail: str, param: str) -> Problem:
    """Return the answer to a request that asks for what is not served here."""
    return Problem(HTTPStatus.BAD_REQUEST, detail, code="unsupported-parameter", param=param)


def parts_of(content: str | Sequence[Mapping[str, Any]] | None, role: str, where: str = "content") -> Content:
    """Return what a message of this role says, text, refusal and images. Raises Problem for what is not understood."""
    try:
        return content_of(content, role, where)
    except NotTaken as refused:
        raise Problem(
            HTTPStatus.BAD_REQUEST, str(refused), code="unsupported-content", param=refused.param
        ) from refused


def _message(said: ChatMessage, names: dict[str, str], where: str) -> Message:
    _must_be_told(said, where)
    content = parts_of(said.content, said.role, f"{where}.content")
    name = said.name or ""
    match said.role:
        case "user":
            return UserMessage(content=content.text, name=name, images=tuple(content.images))
        case "assistant":
            calls = [
                RequestedCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in said.tool_calls or ()
            ]
            refusal = content.refusal or said.refusal or ""
            return AssistantMessage(content=content.text, refusal=refusal, name=name, tool_calls=tuple(calls))
        case "tool":
            call_id = said.tool_call_id or ""
            return ToolMessage(tool_call_id=call_id, name=name or names.get(call_id, ""), content=content.text)
        case _:
            return SystemMessage(content=content.text, name=name)


def _must_be_told(said: ChatMessage, where: str) -> None:
    """Raise Problem for a field of a message that no model would be told of."""
    more = {name: value for name, value in (said.model_extra or {}).items() if not _says_nothing(value)}
    must_be_served(more, MESSAGE, f"{where}.")
    if strange := next(iter(more), None):
        raise not_served(f"{where}.{strange}: no model here is told of it; leave it out", f"{where}.{strange}")


def _says_nothing(value: Any) -> bool:
    """Return whether a value is as good as none: clients send whole records back, with all that was not in them."""
    if isinstance(value, dict):
        return all(map(_says_nothing, value.values()))
    return value is None or value in ("", [])


# --- what is answered -----------------------------------------------------------------------------------------------


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the tokens as Chat Completions counts them, with those details that the model's provider has told."""
    counted: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    details = {"prompt_tokens_details": usage.input_details, "completion_tokens_details": usage.output_details}
    return counted | {name: known for name, known in details.items() if known}


def handed_over_id(call: CallRecord) -> str:
    """Return the id under which a client knows a call; by it the run with the fleet's own calls is found again."""
    return f"call_{call.call_id.replace('.', '_')}"


def run_of_handed_over(call_id: str) -> str | None:
    """Return the run of a call that was handed over; None for any other id."""
    beginning, *position = call_id.removeprefix("call_").rsplit("_", 2)
    if not call_id.startswith("call_") or len(position) != 2 or not all(part.isdigit() for part in position):
        return None
    return beginning


def tool_calls_of(calls: Sequence[CallRecord]) -> list[dict[str, Any]]:
    """Return calls for the client to perform, in OpenAI's format."""
    return [
        {
            "id": handed_over_id(call),
            "type": "function",
            "function": {"name": call.tool, "arguments": call.arguments},
        }
        for call in calls
    ]


def chunk(run_id: str, model: str, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """Return one piece of a streamed completion."""
    return {
        "id": f"chatcmpl-{run_id}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}],
    }


def data_line(value: Any) -> bytes:
    """Return an event without a name, as Chat Completions streams them."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
