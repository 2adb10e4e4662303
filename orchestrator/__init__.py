"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool."""

from orchestrator.agents import Agent
from orchestrator.api import Orchestrator
from orchestrator.history import Approval
from orchestrator.interceptors import Emulation, Interceptor, Permission, RequestedToolCall
from orchestrator.limits import Limits
from orchestrator.offering import ToolProvider
from orchestrator.options import RunOptions

__all__ = [
    "Agent",
    "Approval",
    "Emulation",
    "Interceptor",
    "Limits",
    "Orchestrator",
    "Permission",
    "RequestedToolCall",
    "RunOptions",
    "ToolProvider",
]
