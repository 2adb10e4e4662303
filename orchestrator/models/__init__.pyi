# The names of the models' room, and where they live.

from .anthropic import AnthropicMessages as AnthropicMessages
from .environment import model_from_environment as model_from_environment
from .fallback import FallbackModel as FallbackModel
from .http import HttpOptions as HttpOptions
from .openai import OpenAIChat as OpenAIChat
from .protocol import (
    CallComplete as CallComplete,
    CallDelta as CallDelta,
    ChatModel as ChatModel,
    FinishReason as FinishReason,
    ModelEvent as ModelEvent,
    OfferedTool as OfferedTool,
    ReplyComplete as ReplyComplete,
    Restarted as Restarted,
    TextDelta as TextDelta,
    ThoughtDelta as ThoughtDelta,
    reply as reply,
)
from .rehearsal import (
    REHEARSAL_MODEL as REHEARSAL_MODEL,
    RehearsalServer as RehearsalServer,
    rehearsal_model as rehearsal_model,
)
