"""Asking models: wire formats, retries, fallbacks, and the rehearsal model for machines without a key.

Knows messages and tool specs; it must not know Redis, Celery or how a call is run.
"""

from toolfleet.orchestrator.models.anthropic import AnthropicMessages
from toolfleet.orchestrator.models.environment import model_from_environment
from toolfleet.orchestrator.models.fallback import FallbackModel
from toolfleet.orchestrator.models.http import HttpOptions
from toolfleet.orchestrator.models.openai import OpenAIChat
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    CallDelta,
    ChatModel,
    FinishReason,
    ModelEvent,
    OfferedTool,
    ReplyComplete,
    Restarted,
    TextDelta,
    ThoughtDelta,
    reply,
)
from toolfleet.orchestrator.models.rehearsal import REHEARSAL_MODEL, RehearsalServer, rehearsal_model

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
    "ThoughtDelta",
    "model_from_environment",
    "rehearsal_model",
    "reply",
]
