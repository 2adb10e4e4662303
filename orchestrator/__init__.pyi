# The public names of the orchestrator, and where they live.

from . import sync as sync
from .api import (
    Orchestrator as Orchestrator,
)
from .assistants.assistant import (
    Result as Result,
    RunFailed as RunFailed,
    agent_of as agent_of,
    asks as asks,
    assistant as assistant,
    forget as forget,
    system as system,
)
from .errors import (
    AmbiguousId as AmbiguousId,
    BudgetSpent as BudgetSpent,
    HandleNotFound as HandleNotFound,
    InvalidAssistant as InvalidAssistant,
    MayHaveRun as MayHaveRun,
    ModelError as ModelError,
    ModelRefused as ModelRefused,
    ModelReplyInvalid as ModelReplyInvalid,
    ModelUnreachable as ModelUnreachable,
    NoSuchShard as NoSuchShard,
    NotOpen as NotOpen,
    OrchestratorClosed as OrchestratorClosed,
    RunExists as RunExists,
    RunNotFound as RunNotFound,
    RunNotOpen as RunNotOpen,
    UnknownPrice as UnknownPrice,
    UnknownTool as UnknownTool,
)
from .models import (
    REHEARSAL_MODEL as REHEARSAL_MODEL,
    AnthropicMessages as AnthropicMessages,
    ChatModel as ChatModel,
    FallbackModel as FallbackModel,
    HttpOptions as HttpOptions,
    ModelEvent as ModelEvent,
    OfferedTool as OfferedTool,
    OpenAIChat as OpenAIChat,
    RehearsalServer as RehearsalServer,
    ReplyComplete as ReplyComplete,
    model_from_environment as model_from_environment,
    rehearsal_model as rehearsal_model,
    reply as reply,
)
from .models.recorded import (
    FunctionModel as FunctionModel,
    RecordedModel as RecordedModel,
)
from .options import (
    RunOptions as RunOptions,
)
from .run.events import (
    Approval as Approval,
    CallRecord as CallRecord,
)
from .run.limits import (
    Limits as Limits,
)
from .run.states import (
    State as State,
)
from .run.updates import (
    BudgetRunsLow as BudgetRunsLow,
    CallArgumentsArrived as CallArgumentsArrived,
    CallAwaitsApproval as CallAwaitsApproval,
    CallEnded as CallEnded,
    CallProgressed as CallProgressed,
    CallsRequested as CallsRequested,
    CallStarted as CallStarted,
    CallSubmitted as CallSubmitted,
    ReplyBegan as ReplyBegan,
    RunBegan as RunBegan,
    RunEnded as RunEnded,
    RunUpdate as RunUpdate,
    TextArrived as TextArrived,
    ThoughtArrived as ThoughtArrived,
    UserSpoke as UserSpoke,
)
from .run.value import (
    Run as Run,
)
from .run.words import (
    Words as Words,
)
from .shards.sharded import (
    ShardedOrchestrator as ShardedOrchestrator,
)
from .tools.agents import (
    Agent as Agent,
)
from .tools.interceptors import (
    Emulation as Emulation,
    Interceptor as Interceptor,
    OnFailure as OnFailure,
    Permission as Permission,
    RequestedToolCall as RequestedToolCall,
)
from .tools.offer import (
    ToolProvider as ToolProvider,
)
from .tools.request import (
    Heard as Heard,
    ModelRequest as ModelRequest,
    Note as Note,
    TextFilter as TextFilter,
)
from .tools.standard.clearing import (
    ClearOldResults as ClearOldResults,
)
from .tools.standard.extra_arguments import (
    ExtraArguments as ExtraArguments,
)
from .tools.standard.guardrail import (
    Guardrail as Guardrail,
    JudgedBy as JudgedBy,
    Verdict as Verdict,
)
from .tools.standard.personal_data import (
    PersonalData as PersonalData,
)
from .tools.standard.summaries import (
    Summaries as Summaries,
)
from .tools.standard.todos import (
    Todos as Todos,
)
from .tools.standard.tool_selection import (
    ToolSelection as ToolSelection,
)
from .tools.tool_search import (
    ToolSearch as ToolSearch,
)
