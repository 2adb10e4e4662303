"""The Anthropic Messages wire format: a request's body. Pure.

The conversation itself is written by `anthropic_messages`; what comes back is read in `anthropic_reply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolfleet.messages import Message, SystemMessage
from toolfleet.orchestrator.models.anthropic_messages import (
    container_of,
    encoded,
    encoded_tool,
    objection_to_messages,
    tools_used,
)
from toolfleet.orchestrator.models.anthropic_options import anthropic_options, objection_to_options
from toolfleet.orchestrator.models.anthropic_reply import MessageReader
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.objections import objection_to_images
from toolfleet.orchestrator.models.protocol import OfferedTool
from toolfleet.orchestrator.models.provider_tools import name_of


class AnthropicWire:
    """Anthropic Messages."""

    path = "/v1/messages"

    def __init__(self, *, max_tokens: int, sees: bool = True, provider_tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self._max_tokens = max_tokens
        self._sees = sees
        self._provider_tools = tuple(provider_tools)
        self.provider_names = frozenset(map(name_of, provider_tools))

    def request(
        self, model: str, messages: Sequence[Message], tools: Sequence[OfferedTool], *, stream: bool, provider: str
    ) -> dict[str, Any]:
        """Return the request's body; `max_tokens` is not optional here."""
        turns = encoded(messages, provider, sees=self._sees)
        body: dict[str, Any] = {"model": model, "max_tokens": self._max_tokens, "messages": turns}
        system = "\n\n".join(message.content for message in messages if isinstance(message, SystemMessage))
        if system:
            body["system"] = system
        if container := container_of(messages, provider):
            body["container"] = container
        if tools or self._provider_tools:
            body["tools"] = [*map(encoded_tool, tools), *self._provider_tools]
        elif used := tools_used(messages):
            # The API refuses a conversation in which tools were used that are not there any more.
            body["tools"], body["tool_choice"] = used, {"type": "none"}
        if stream:
            body["stream"] = True
        return body

    def options(self, model: str, asked: Mapping[str, Any], *, host: str, has_tools: bool) -> dict[str, Any]:  # noqa: ARG002  # the protocol's
        """Return what the model is asked with besides, in the words that it takes."""
        return anthropic_options(asked, has_tools=has_tools or bool(self._provider_tools))

    def objection(self, model: str, messages: Sequence[Message], asked: Mapping[str, Any]) -> str | None:
        """Return why the model must not be asked this; None if nothing is known against it."""
        return (
            objection_to_images(model, messages, sees=self._sees)
            or objection_to_messages(messages)
            or objection_to_options(asked)
        )

    def reader(self, assembly: ReplyAssembly, address: str) -> MessageReader:
        """Return a reader for one reply."""
        return MessageReader(assembly, address)
