"""Runs conversations: asks the model, sends its tool calls to the fleet, gathers the results. Never runs a tool."""

from orchestrator.api import Orchestrator

__all__ = ["Orchestrator"]
