"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool.

A name is imported when it is first asked for: the command must start, and hear Ctrl-C, before it has read all of this.
"""

# Not from `typing`, whose import takes longer than all else before the command hears Ctrl-C; type checkers know it.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from orchestrator.agents import Agent
    from orchestrator.api import Orchestrator
    from orchestrator.assistant import InvalidAssistant, Result, RunFailed, agent_of, asks, assistant, forget, system
    from orchestrator.history import Approval
    from orchestrator.interceptors import Emulation, Interceptor, OnFailure, Permission, RequestedToolCall
    from orchestrator.limits import Limits
    from orchestrator.offering import ToolProvider
    from orchestrator.options import RunOptions

__all__ = [
    "Agent",
    "Approval",
    "Emulation",
    "Interceptor",
    "InvalidAssistant",
    "Limits",
    "OnFailure",
    "Orchestrator",
    "Permission",
    "RequestedToolCall",
    "Result",
    "RunFailed",
    "RunOptions",
    "ToolProvider",
    "agent_of",
    "asks",
    "assistant",
    "forget",
    "system",
]

_HOMES = {
    "Agent": "orchestrator.agents",
    "Approval": "orchestrator.history",
    "Emulation": "orchestrator.interceptors",
    "Interceptor": "orchestrator.interceptors",
    "InvalidAssistant": "orchestrator.assistant",
    "Limits": "orchestrator.limits",
    "OnFailure": "orchestrator.interceptors",
    "Orchestrator": "orchestrator.api",
    "Permission": "orchestrator.interceptors",
    "RequestedToolCall": "orchestrator.interceptors",
    "Result": "orchestrator.assistant",
    "RunFailed": "orchestrator.assistant",
    "RunOptions": "orchestrator.options",
    "ToolProvider": "orchestrator.offering",
    "agent_of": "orchestrator.assistant",
    "asks": "orchestrator.assistant",
    "assistant": "orchestrator.assistant",
    "forget": "orchestrator.assistant",
    "system": "orchestrator.assistant",
}


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415  # as above

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
