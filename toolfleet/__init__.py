"""What a tool's author imports. Light on purpose: no Celery, no httpx, no Redis."""

from toolfleet.arguments import Arguments, BadArguments
from toolfleet.calls import Effect, Failed, FailureKind, Progress, Returned, Submitted
from toolfleet.context import CallHistory, Context, ConversationId, FromContext, current_context
from toolfleet.errors import ToolError, ToolfleetError
from toolfleet.masks import Secret
from toolfleet.media import Media
from toolfleet.tool import Tool, ToolSpec, tool

__all__ = [
    "Arguments",
    "BadArguments",
    "CallHistory",
    "Context",
    "ConversationId",
    "Effect",
    "Failed",
    "FailureKind",
    "FromContext",
    "Media",
    "Progress",
    "Returned",
    "Secret",
    "Submitted",
    "Tool",
    "ToolError",
    "ToolSpec",
    "ToolfleetError",
    "current_context",
    "tool",
]
