"""Asking models: wire formats, retries, fallbacks, and the rehearsal model for machines without a key.

Knows messages and tool specs; it must not know Redis, Celery or how a call is run.
"""

from orchestrator.models.anthropic import AnthropicMessages
from orchestrator.models.environment import model_from_environment
from orchestrator.models.fallback import FallbackModel
from orchestrator.models.http import HttpOptions
from orchestrator.models.openai import OpenAIChat
from orchestrator.models.protocol import (
    CallComplete,
    CallDelta,
    ChatModel,
    FinishReason,
    ModelEvent,
    OfferedTool,
    ReplyComplete,
    Restarted,
    TextDelta,
    reply,
)
from orchestrator.models.rehearsal import REHEARSAL_MODEL, RehearsalServer, rehearsal_model

__all__ = [
    "REHEARSAL_MODEL",
    "AnthropicMessages",
    "CallComplete",
    "CallDelta",
    "ChatModel",
    "FallbackModel",
    "FinishReason",
    "HttpOptions",
    "ModelEvent",
    "OfferedTool",
    "OpenAIChat",
    "RehearsalServer",
    "ReplyComplete",
    "Restarted",
    "TextDelta",
    "model_from_environment",
    "rehearsal_model",
    "reply",
]
