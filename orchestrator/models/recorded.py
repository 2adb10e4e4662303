"""Models for tests: one that is a function of the conversation, one that says again what it has said once.

No network here. Both are asked as any other model is, and their replies take the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from toolfleet.messages import AssistantMessage, Message, Usage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models.protocol import ChatModel, FinishReason, ModelEvent, OfferedTool, ReplyComplete

_MESSAGES: TypeAdapter[Sequence[Message]] = TypeAdapter(Sequence[Message])


class FunctionModel:
    """Replies with what a function makes of the conversation so far.

    Let it depend on nothing but the messages, and any orchestrator may take a run over from any other.
    """

    def __init__(self, function: Callable[[Sequence[Message]], AssistantMessage], *, name: str = "function") -> None:
        self._function = function
        self.name = name

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],  # noqa: ARG002  # the protocol's
        *,
        extra_body: Mapping[str, Any] | None = None,  # noqa: ARG002  # the protocol's
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the function's reply, in one piece."""
        said = self._function(messages)
        reason = FinishReason.TOOL_CALLS if said.tool_calls else FinishReason.STOP
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        """Nothing to close."""


class RecordedModel:
    """Says what the file at `path` holds for a conversation; with a `model`, asks it for what is missing and keeps it.

    Record once with a key, then test without one: commit the file. Offered tools are not part of what is looked up.
    Raises ModelRefused for a conversation that is not recorded.
    """

    def __init__(self, path: Path, model: ChatModel | None = None, *, name: str = "recorded") -> None:
        self._path = path
        self._model = model
        self.name = model.name if model else name
        lines = path.read_bytes().splitlines() if path.exists() else []
        self._replies = {entry["conversation"]: entry["reply"] for entry in map(orjson.loads, lines)}

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the recorded reply, in one piece; a new one as it comes from the model."""
        conversation = hashlib.sha256(_MESSAGES.dump_json(messages)).hexdigest()
        if conversation not in self._replies:
            if self._model is None:
                raise ModelRefused(f"{self._path} has no reply to this conversation: record it with a model")
            async with aclosing(self._model.stream(messages, tools, extra_body=extra_body)) as events:
                async for event in events:
                    if isinstance(event, ReplyComplete):
                        self._keep(conversation, event)
                    yield event
            return
        yield _read(self._replies[conversation])

    async def aclose(self) -> None:
        """Close the model that is recorded."""
        if self._model is not None:
            await self._model.aclose()

    def _keep(self, conversation: str, said: ReplyComplete) -> None:
        written = {
            "message": said.message.model_dump(),
            "usage": said.usage.model_dump(),
            "model": said.model,
            "finish_reason": str(said.finish_reason),
        }
        self._replies[conversation] = written
        with self._path.open("ab") as file:
            file.write(orjson.dumps({"conversation": conversation, "reply": written}) + b"\n")


def _read(written: Mapping[str, Any]) -> ReplyComplete:
    return ReplyComplete(
        message=AssistantMessage.model_validate(written["message"]),
        usage=Usage.model_validate(written["usage"]),
        model=written["model"],
        finish_reason=written["finish_reason"],
    )
