"""What the rest of the orchestrator knows of a model: messages and tools in, a stream of events out.

No wire format, no HTTP here. The events of one reply end with exactly one `ReplyComplete`, or with a `ModelError`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from toolfleet.messages import AssistantMessage, Message, RequestedCall, Usage
from toolfleet.orchestrator.errors import ModelReplyInvalid


class OfferedTool(Protocol):
    """What a model is told about a tool; `toolfleet.tool.ToolSpec` has these attributes."""

    @property
    def name(self) -> str:
        """The catalog name; it may be one that the provider would refuse."""
        ...

    @property
    def description(self) -> str:
        """When and how to use the tool, written for the model."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        ...

    @property
    def strict(self) -> bool | None:
        """Whether the provider is to hold the model to the schema; None leaves it to the provider."""
        ...


class FinishReason(StrEnum):
    """Why a reply ended, in one vocabulary for all providers. A reason not known here is passed on as it came."""

    STOP = "stop"
    """The model had said what it wanted to say."""
    TOOL_CALLS = "tool_calls"
    """The model asks for tool calls."""
    LENGTH = "length"
    """The provider's output limit cut the reply: the arguments of its last call may be incomplete."""
    CONTENT_FILTER = "content_filter"
    """The provider withheld the reply, or the rest of it."""
    REFUSAL = "refusal"
    """The model would not answer, or not go on."""
    PAUSED = "paused"
    """The provider has paused its own tools more often than it was asked to go on; the reply is as far as it came."""
    INTERRUPTED = "interrupted"
    """The connection broke after a call had been handed out; the reply keeps the calls that were complete."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """More of what the model lets see of its thinking, before the first text or call of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of one call's arguments, for display. `index` is the call's position in the finished message."""

    index: int
    id: str
    name: str
    arguments_delta: str


@dataclass(frozen=True, slots=True)
class CallComplete:
    """One call is complete and may be dispatched before the reply ends.

    Calls complete in the order of their `index`, and each one emitted is at that index of the final message, whatever
    happens to the stream afterwards: dispatching it early is never a mistake.
    """

    index: int
    call: RequestedCall


@dataclass(frozen=True, slots=True)
class Restarted:
    """The reply begins anew (connection lost, or another model took over): forget the deltas shown so far.

    Never follows a `CallComplete`, so no dispatched call is ever taken back.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class ReplyComplete:
    """The whole reply: always the last event, exactly once, and the truth where deltas differ from it."""

    message: AssistantMessage
    usage: Usage
    model: str
    finish_reason: str
    service_tier: str = ""
    """With which priority the provider has served it, in OpenAI's words; "" where it does not say."""
    system_fingerprint: str = ""
    """Which set-up of the provider has served it; "" where it does not say."""


ModelEvent = TextDelta | ThoughtDelta | CallDelta | CallComplete | Restarted | ReplyComplete


@runtime_checkable
class ChatModel(Protocol):
    """Something that answers a conversation, one reply at a time. Any number of replies may be streamed at once."""

    @property
    def name(self) -> str:
        """The model's name, for logs and records."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask for one reply.

        `extra_body` goes into the request as it is (temperature, tool_choice, …: the provider's own parameters). Who
        stops reading early closes the generator (`contextlib.aclosing`), which hangs up on the provider.

        Raises:
            ModelUnreachable: no answer, after retries.
            ModelRefused: key, quota, model name or parameters.
            ModelReplyInvalid: an answer that is not the protocol.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections; the model cannot be asked afterwards."""
        ...


def provider_of(model: ChatModel) -> str:
    """Return whose format a model speaks (`openai`, `anthropic`), where it says so: `provider` is no part of it."""
    return str(getattr(model, "provider", "") or "_OTHER")


def provider_tools_of(model: ChatModel) -> tuple[str, ...]:
    """Return the names of the tools that the model's provider runs itself; `provider_tools` is no part of it."""
    return tuple(getattr(model, "provider_tools", ()))


async def reply(
    model: ChatModel,
    messages: Sequence[Message],
    tools: Sequence[OfferedTool] = (),
    *,
    extra_body: Mapping[str, Any] | None = None,
) -> ReplyComplete:
    """The finished reply, for callers with no use for the events before it. Raises as `ChatModel.stream` does."""
    async with aclosing(model.stream(messages, tools, extra_body=extra_body)) as events:
        async for event in events:
            if isinstance(event, ReplyComplete):
                return event
    raise ModelReplyInvalid(f"{model.name} ended its reply without completing it")
