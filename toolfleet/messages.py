"""The conversation's messages, in no provider's format.

The models' rooms translate them to and from each wire format. Nothing here knows about calls on the fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from toolfleet.calls import MediaPart, Record
from toolfleet.images import Image
from toolfleet.trusted import trusted

Name = Annotated[str, Field(max_length=256, exclude_if=lambda name: not name)]
"""Which of several participants speaks, where a provider can be told."""

Extras = dict[str, JsonValue]
"""What a provider wants back unchanged on the next turn (signatures of thoughts and the like), under its host's name.

Nobody but that provider's wire format reads it; a history without any is stored without the field.
"""


TokenCounts = dict[str, int]


class SystemMessage(Record):
    """Instructions for the model."""

    role: Literal["system"] = "system"
    content: str
    name: Name = ""


class UserMessage(Record):
    """What the user said, and the images that came with it."""

    role: Literal["user"] = "user"
    content: str
    name: Name = ""
    images: tuple[Image, ...] = Field(default=(), exclude_if=lambda images: not images)

    @property
    def parts(self) -> list[str | Image]:
        """Text and images in the order in which they were said."""
        said: list[str | Image] = []
        told = 0
        for image in sorted(self.images, key=lambda image: image.at):
            if image.at > told:
                said.append(self.content[told : image.at])
                told = image.at
            said.append(image)
        return [*said, rest] if (rest := self.content[told:]) else said


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
    refusal: str = Field(default="", exclude_if=lambda refusal: not refusal)
    """What the model said in place of an answer that it would not give."""
    thoughts: str = Field(default="", exclude_if=lambda thoughts: not thoughts, repr=False)
    """What the model let see of its thinking before it spoke. It is shown, and goes to no model."""
    name: Name = ""
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


def described(message: Message) -> str:
    """What a message says, for people who look at it: of images what they are, and a refusal where that was all."""
    match message:
        case UserMessage():
            return "".join(part if isinstance(part, str) else part.described for part in message.parts)
        case AssistantMessage():
            return message.content or message.refusal
        case _:
            return message.content


def is_same_conversation(said: Sequence[Message], asked: Sequence[Message]) -> bool:
    """Return whether both say the same, wherever their images are kept."""
    return [_with_digests(message) for message in said] == [_with_digests(message) for message in asked]


def _with_digests(message: Message) -> tuple[Message, tuple[str, ...]]:
    if not isinstance(message, UserMessage) or not message.images:
        return message, ()
    return message.model_copy(update={"images": ()}), tuple(image.identity for image in message.images)


class Usage(Record):
    """Tokens counted by the provider; zero where it does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_details: TokenCounts = Field(default_factory=dict, exclude_if=lambda counted: not counted)
    """What is known of the input tokens, in OpenAI's words: `cached_tokens`, `cache_write_tokens` and the like."""
    output_details: TokenCounts = Field(default_factory=dict, exclude_if=lambda counted: not counted)
    """What is known of the output tokens, in OpenAI's words: `reasoning_tokens` and the like."""
    provider_tools: TokenCounts = Field(default_factory=dict, exclude_if=lambda counted: not counted)
    """How often the provider's own tools were used, by their names; those of agents' runs stand in these runs."""

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of two turns."""
        return _own_usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            input_details=_sum(self.input_details, other.input_details),
            output_details=_sum(self.output_details, other.output_details),
            provider_tools=_sum(self.provider_tools, other.provider_tools),
        )


_own_usage: Final = trusted(Usage)


def _sum(counted: TokenCounts, more: TokenCounts) -> TokenCounts:
    if not (counted and more):
        return counted or more
    both = Counter(counted)
    both.update(more)  # not `+`, which leaves out what is zero: that nothing was cached is known then
    return dict(both)
