"""A model in this process that answers at once, so that what is measured is the orchestrator."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import orjson

from toolfleet.messages import AssistantMessage, Message, RequestedCall, Usage
from toolfleet.orchestrator.models import ReplyComplete

ANSWER = "done"


class AskingModel:
    """Asks for one call of `tool` in each of so many turns as the question says, then answers."""

    name = "asking"

    def __init__(self, tool: str, *, on_turn: Callable[[int], None] | None = None) -> None:
        self._tool = tool
        self._on_turn = on_turn

    async def stream(
        self, messages: Sequence[Message], tools: Any, **options: Any
    ) -> AsyncGenerator[ReplyComplete, None]:
        """See `ChatModel`. The turn is seen by the length of the conversation: question, then two messages a turn."""
        del tools, options
        turn = (len(messages) - 1) // 2
        if self._on_turn is not None:
            self._on_turn(turn)
        if turn == int(str(messages[0].content)):
            message, reason = AssistantMessage(content=ANSWER), "stop"
        else:
            # Another argument each time: who repeats itself is stopped by the orchestrator.
            call = RequestedCall(id=f"call-{turn}", name=self._tool, arguments=orjson.dumps({"x": turn}).decode())
            message, reason = AssistantMessage(tool_calls=(call,)), "tool_calls"
        yield ReplyComplete(message=message, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        """See `ChatModel`."""
