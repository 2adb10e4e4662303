# The public names, and where they live. `Interceptor` and `Permission` stand around the runs of an orchestrator; those
# around a tool on its worker (`ToolInterceptor`, `ToolPermission`, `Retry` and others) are in toolfleet.interceptors.

from .arguments.parsing import (
    Arguments as Arguments,
)
from .artifacts import (
    Artifact as Artifact,
)
from .asking import (
    Declined as Declined,
    Form as Form,
    ModelPrompt as ModelPrompt,
    ask as ask,
)
from .calls import (
    Effect as Effect,
    Failed as Failed,
    FailureKind as FailureKind,
    NotDone as NotDone,
    Progress as Progress,
    Returned as Returned,
    Submitted as Submitted,
    ToolCall as ToolCall,
)
from .context import (
    CallHistory as CallHistory,
    Context as Context,
    ConversationId as ConversationId,
    FromContext as FromContext,
    current_context as current_context,
)
from .declared_limits import (
    FromArgument as FromArgument,
    FromTenant as FromTenant,
)
from .errors import (
    ArtifactNotFound as ArtifactNotFound,
    BadAnswer as BadAnswer,
    BadArguments as BadArguments,
    BrokerUnreachable as BrokerUnreachable,
    CallerError as CallerError,
    DuplicateTool as DuplicateTool,
    InvalidSettings as InvalidSettings,
    InvalidTool as InvalidTool,
    NoToolsFound as NoToolsFound,
    OperatorError as OperatorError,
    PortInUse as PortInUse,
    QuestionExpired as QuestionExpired,
    RetryAfter as RetryAfter,
    ServerNotStarted as ServerNotStarted,
    StoreUnreachable as StoreUnreachable,
    ToolError as ToolError,
    ToolfleetError as ToolfleetError,
    ToolModuleError as ToolModuleError,
    WorkerNotReady as WorkerNotReady,
)
from .garbage import (
    collect_rarely as collect_rarely,
)
from .handwritten import (
    hand_written as hand_written,
)
from .images import (
    Image as Image,
)
from .local.fleet import (
    LocalFleet as LocalFleet,
)
from .masks import (
    Secret as Secret,
)
from .media import (
    Media as Media,
)
from .messages import (
    AssistantMessage as AssistantMessage,
    Message as Message,
    RequestedCall as RequestedCall,
    SystemMessage as SystemMessage,
    ToolMessage as ToolMessage,
    Usage as Usage,
    UserMessage as UserMessage,
)
from .orchestrator import (
    REHEARSAL_MODEL as REHEARSAL_MODEL,
    Agent as Agent,
    AmbiguousId as AmbiguousId,
    AnthropicMessages as AnthropicMessages,
    Approval as Approval,
    BudgetRunsLow as BudgetRunsLow,
    BudgetSpent as BudgetSpent,
    CallArgumentsArrived as CallArgumentsArrived,
    CallAwaitsApproval as CallAwaitsApproval,
    CallEnded as CallEnded,
    CallProgressed as CallProgressed,
    CallRecord as CallRecord,
    CallsRequested as CallsRequested,
    CallStarted as CallStarted,
    CallSubmitted as CallSubmitted,
    ChatModel as ChatModel,
    ClearOldResults as ClearOldResults,
    Emulation as Emulation,
    ExtraArguments as ExtraArguments,
    FallbackModel as FallbackModel,
    FunctionModel as FunctionModel,
    Guardrail as Guardrail,
    HandleNotFound as HandleNotFound,
    Heard as Heard,
    HttpOptions as HttpOptions,
    Interceptor as Interceptor,
    InvalidAssistant as InvalidAssistant,
    JudgedBy as JudgedBy,
    Limits as Limits,
    MayHaveRun as MayHaveRun,
    ModelError as ModelError,
    ModelEvent as ModelEvent,
    ModelRefused as ModelRefused,
    ModelReplyInvalid as ModelReplyInvalid,
    ModelRequest as ModelRequest,
    ModelUnreachable as ModelUnreachable,
    NoSuchShard as NoSuchShard,
    Note as Note,
    NotOpen as NotOpen,
    OfferedTool as OfferedTool,
    OnFailure as OnFailure,
    OpenAIChat as OpenAIChat,
    Orchestrator as Orchestrator,
    OrchestratorClosed as OrchestratorClosed,
    Permission as Permission,
    PersonalData as PersonalData,
    RecordedModel as RecordedModel,
    RehearsalServer as RehearsalServer,
    ReplyBegan as ReplyBegan,
    ReplyComplete as ReplyComplete,
    RequestedToolCall as RequestedToolCall,
    Result as Result,
    Run as Run,
    RunBegan as RunBegan,
    RunEnded as RunEnded,
    RunExists as RunExists,
    RunFailed as RunFailed,
    RunNotFound as RunNotFound,
    RunNotOpen as RunNotOpen,
    RunOptions as RunOptions,
    RunUpdate as RunUpdate,
    ShardedOrchestrator as ShardedOrchestrator,
    State as State,
    Summaries as Summaries,
    TextArrived as TextArrived,
    TextFilter as TextFilter,
    ThoughtArrived as ThoughtArrived,
    Todos as Todos,
    ToolProvider as ToolProvider,
    ToolSearch as ToolSearch,
    ToolSelection as ToolSelection,
    UnknownPrice as UnknownPrice,
    UnknownTool as UnknownTool,
    UserSpoke as UserSpoke,
    Verdict as Verdict,
    Words as Words,
    agent_of as agent_of,
    asks as asks,
    assistant as assistant,
    forget as forget,
    model_from_environment as model_from_environment,
    rehearsal_model as rehearsal_model,
    reply as reply,
    sync as sync,
    system as system,
)
from .prices import (
    Price as Price,
)
from .settings import (
    Settings as Settings,
)
from .tool import (
    Tool as Tool,
    ToolSpec as ToolSpec,
    tool as tool,
)
from .toolbox import (
    tools_in as tools_in,
)
