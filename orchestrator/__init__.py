"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool."""

from orchestrator.agents import Agent
from orchestrator.api import Orchestrator, RunOptions
from orchestrator.history import Approval

__all__ = ["Agent", "Approval", "Orchestrator", "RunOptions"]
