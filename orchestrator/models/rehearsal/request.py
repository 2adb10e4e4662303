"""The server's side of Chat Completions: a request to messages and tools.

Pure. Refuses what OpenAI refuses (illegal names, calls without results), so whoever passes here would pass there.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, UserMessage

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RequestRefused(Exception):
    """The request breaks the protocol; the text says how, in OpenAI's manner."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Function(_Part):
    name: str
    arguments: str


class _Call(_Part):
    id: str
    function: _Function
    extra_content: dict[str, Any] = Field(default_factory=dict)


class _Message(_Part):
    role: str
    content: str | None = None
    tool_calls: list[_Call] = Field(default_factory=list)
    tool_call_id: str | None = None


class _ToolFunction(_Part):
    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


class _Tool(_Part):
    function: _ToolFunction


class CompletionRequest(_Part):
    """A request as it came in."""

    model: str
    messages: list[_Message]
    tools: list[_Tool] = Field(default_factory=list)
    stream: bool = False
    stream_options: dict[str, Any] = Field(default_factory=dict)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the token counts."""
        return bool(self.stream_options.get("include_usage"))


@dataclass(frozen=True, slots=True)
class WireTool:
    """A tool as the request offers it."""

    name: str
    description: str
    input_schema: dict[str, Any] = field(default_factory=dict)
    strict: bool | None = None


def offered_tools(request: CompletionRequest) -> list[WireTool]:
    """Return the tools on offer. Raises RequestRefused for a name that OpenAI would not take."""
    for position, tool in enumerate(request.tools):
        if not _LEGAL_NAME.fullmatch(tool.function.name):
            raise RequestRefused(
                f"Invalid 'tools[{position}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
            )
    functions = [tool.function for tool in request.tools]
    return [WireTool(each.name, each.description, each.parameters) for each in functions]


def conversation(request: CompletionRequest) -> list[Message]:
    """Return the messages. Raises RequestRefused where calls and results do not match, or arguments are not JSON."""
    messages: list[Message] = []
    unanswered: dict[str, str] = {}
    for message in request.messages:
        if message.role != "tool" and unanswered:
            raise _unanswered(unanswered)
        messages.append(_decoded(message, unanswered))
        unanswered |= {call.id: call.function.name for call in message.tool_calls}
    if unanswered:
        raise _unanswered(unanswered)
    return messages


def refuse_unsigned(request: CompletionRequest) -> None:
    """Raises RequestRefused for a call that has lost the signature it was sent with."""
    for call in (call for message in request.messages for call in message.tool_calls):
        if call.extra_content != signed(call.function.name, call.id):
            raise RequestRefused(f"Function call is missing a thought_signature: {call.function.name}, {call.id}.")


def signed(name: str, call_id: str) -> dict[str, Any]:
    """Return the signature of a call, in the form and place of Gemini's."""
    signature = hashlib.sha256(f"{name} {call_id}".encode()).hexdigest()
    return {"google": {"thought_signature": signature}}


def _decoded(message: _Message, unanswered: dict[str, str]) -> Message:
    content = message.content or ""
    match message.role:
        case "system" | "developer":
            return SystemMessage(content=content)
        case "user":
            return UserMessage(content=content)
        case "assistant":
            return AssistantMessage(content=content, tool_calls=tuple(_past_call(call) for call in message.tool_calls))
        case "tool" if message.tool_call_id in unanswered:
            name = unanswered.pop(message.tool_call_id)
            return ToolMessage(tool_call_id=message.tool_call_id, name=name, content=content)
        case "tool":
            raise RequestRefused("messages with role 'tool' must follow a message with 'tool_calls' that has their id.")
        case role:
            raise RequestRefused(f"Invalid value: '{role}'.")


def _past_call(call: _Call) -> RequestedCall:
    try:
        json.loads(call.function.arguments)
    except ValueError:
        raise RequestRefused(f"tool call {call.id}: 'arguments' is not valid JSON.") from None
    return RequestedCall(id=call.id, name=call.function.name, arguments=call.function.arguments)


def _unanswered(calls: dict[str, str]) -> RequestRefused:
    return RequestRefused(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(calls)}"
    )
