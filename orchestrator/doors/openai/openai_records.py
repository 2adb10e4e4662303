"""OpenAI's formats as far as they are served: what its clients send, read leniently, and what they are answered.

Fields that this project has no use for are passed over, as other compatible servers do. Pure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.models.chat_fields import passed_on
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.tool import ToolSpec


class Lenient(BaseModel):
    """What a client sends. A field that is not known is ignored."""

    model_config = ConfigDict(extra="allow")


class Function(Lenient):
    """A function that the client performs itself."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


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
    name: str | None = None


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
    n: Literal[1] | None = None
    toolfleet: AskedTerms = Field(
        default=AskedTerms(), description="This project's own member: every option that a run has."
    )

    def model_options(self) -> dict[str, Any]:
        """Return the options that go on to the model."""
        return passed_on({**(self.model_extra or {}), "tool_choice": self.tool_choice})

    def client_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as the model is to see them."""
        return tuple(spec_of(tool.function) for tool in self.tools or ())

    def conversation(self) -> list[Message]:
        """Return the messages in no provider's format. Raises Problem for what has no place in it."""
        names = {call.id: call.function.name for said in self.messages for call in said.tool_calls or ()}
        return [_message(said, names) for said in self.messages]


def spec_of(function: Function) -> ToolSpec:
    """Return a client's function as a tool that no worker serves."""
    schema = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(name=function.name, description=function.description or "", input_schema=schema)


def text_of(content: str | list[dict[str, Any]] | None) -> str:
    """Return a message's text. Raises Problem for anything but text."""
    if not isinstance(content, list):
        return content or ""
    texts = []
    for part in content:
        text = part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"only text is understood here, not {part.get('type', 'this part')!s}",
                code="unsupported-content",
            )
        texts.append(text)
    return "".join(texts)


def _message(said: ChatMessage, names: dict[str, str]) -> Message:
    text = text_of(said.content)
    match said.role:
        case "user":
            return UserMessage(content=text)
        case "assistant":
            calls = [
                RequestedCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in said.tool_calls or ()
            ]
            return AssistantMessage(content=text, tool_calls=tuple(calls))
        case "tool":
            call_id = said.tool_call_id or ""
            return ToolMessage(tool_call_id=call_id, name=said.name or names.get(call_id, ""), content=text)
        case _:
            return SystemMessage(content=text)


# --- what is answered -----------------------------------------------------------------------------------------------


def usage_of(usage: Usage) -> dict[str, int]:
    """Return the tokens as Chat Completions counts them."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


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
