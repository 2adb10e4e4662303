"""The model of a run that makes one call for somebody else's loop: it asks for that call, then is done."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

import orjson

from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage
from toolfleet.orchestrator.models.protocol import FinishReason, ModelEvent, OfferedTool, ReplyComplete

NAME: Final = "hosted-loop"
"""By this name processes that serve environments on one fleet go on with each other's runs."""


def question_for(tool: str, arguments: str) -> str:
    """Return what such a run is begun with; `arguments` are JSON text, and stay as they are."""
    return orjson.dumps({"tool": tool, "arguments": arguments}).decode()


class RelayModel:
    """Replies with the call that the first message names, then ends the run. It depends on nothing but the messages."""

    name = NAME

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],  # noqa: ARG002  # the protocol's
        *,
        extra_body: Mapping[str, Any] | None = None,  # noqa: ARG002  # the protocol's
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply, in one piece."""
        said, reason = AssistantMessage(content="The result goes to the session."), FinishReason.STOP
        if not any(isinstance(message, ToolMessage) for message in messages):
            asked = orjson.loads(messages[0].content)
            call = RequestedCall(id="call_1", name=asked["tool"], arguments=asked["arguments"])
            said, reason = AssistantMessage(tool_calls=(call,)), FinishReason.TOOL_CALLS
        yield ReplyComplete(message=said, usage=Usage(), model=NAME, finish_reason=reason)

    async def aclose(self) -> None:
        """Nothing to close."""
