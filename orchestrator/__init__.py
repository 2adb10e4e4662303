"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool."""

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
