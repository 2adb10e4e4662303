"""The conversation's messages, in no provider's format.

The models' rooms translate them to and from each wire format. Nothing here knows about calls on the fleet.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from toolfleet.calls import MediaPart, Record

Extras = dict[str, JsonValue]
"""What a provider wants back unchanged on the next turn (signatures of thoughts and the like), under its host's name.

Nobody but that provider's wire format reads it; a history without any is stored without the field.
"""


class SystemMessage(Record):
    """Instructions for the model."""

    role: Literal["system"] = "system"
    content: str


class UserMessage(Record):
    """What the user said."""

    role: Literal["user"] = "user"
    content: str


class RequestedCall(Record):
    """One tool call as the model asked for it.

    `id` is the provider's, unique within its message (missing and doubled ones are filled in on arrival). `arguments`
    is the JSON text as the model wrote it.
    """

    id: str
    name: str
    arguments: str
    extras: Extras = Field(default_factory=dict, exclude_if=lambda extras: not extras)


class AssistantMessage(Record):
    """One reply of the model: text, tool calls, or both."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    tool_calls: tuple[RequestedCall, ...] = ()
    extras: Extras = Field(default_factory=dict, exclude_if=lambda extras: not extras)

    @property
    def has_tool_calls(self) -> bool:
        """Whether the model asks for tools, so that it wants to hear of their results before it answers."""
        return bool(self.tool_calls)


class ToolMessage(Record):
    """The answer to one requested call; `tool_call_id` is the `id` of that request."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    name: str
    content: str
    is_error: bool = False
    media: tuple[MediaPart, ...] = Field(default=(), exclude_if=lambda media: not media)
    """Images and the like, for models that take them; `content` says what they are to the others."""


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
]


class Usage(Record):
    """Tokens counted by the provider; zero where it does not say."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two turns."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )
