"""How large a conversation is for a model, about: no provider's tokenizer is asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from toolfleet.messages import AssistantMessage, Message, ToolMessage, UserMessage

BYTES_PER_TOKEN: Final = 4
TOKENS_PER_MESSAGE: Final = 4
TOKENS_PER_IMAGE: Final = 1000

CountTokens = Callable[[Sequence[Message]], int]
"""Must say the same of the same messages, wherever it is asked."""


def approximate_tokens(messages: Sequence[Message]) -> int:
    """How many tokens these messages are, about: a token for four bytes, and something for each message and image."""
    return sum(map(_tokens, messages))


def _tokens(message: Message) -> int:
    texts, images = [message.content], 0
    match message:
        case AssistantMessage():
            texts += [text for call in message.tool_calls for text in (call.name, call.arguments)]
        case UserMessage():
            images = len(message.images)
        case ToolMessage():
            images = len(message.media)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return size // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE + TOKENS_PER_IMAGE * images
