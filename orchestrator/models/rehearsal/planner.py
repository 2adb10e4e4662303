"""Decides the rehearsal model's next reply from the request alone.

Pure: messages and tools in, one reply out; the same request always gets the same reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.models.protocol import OfferedTool
from toolfleet.orchestrator.models.rehearsal import library, program, roots
from toolfleet.orchestrator.models.rehearsal.conversation import Conversation

Script = Callable[[Conversation], AssistantMessage | None]
# The first script that knows the question answers it. A program is explicit, so it comes first.
SCRIPTS: tuple[Script, ...] = (program.reply, library.reply, roots.reply)


def plan(messages: Sequence[Message], tools: Sequence[OfferedTool]) -> AssistantMessage:
    """The next reply: that of the first script which knows the question, else who this model is and what it sees."""
    conversation = Conversation(messages, tools)
    for script in SCRIPTS:
        reply = script(conversation)
        if reply is not None:
            return reply
    return _introduction(conversation)


def _introduction(conversation: Conversation) -> AssistantMessage:
    seen = ", ".join(conversation.tools) or "none"
    return AssistantMessage(
        content=(
            "I am the rehearsal model, a deterministic stand-in for a language model, and I do not know an answer to "
            f"this. The tools that I see: {seen}. To have me use one, write: call NAME {{json}}."
        )
    )
