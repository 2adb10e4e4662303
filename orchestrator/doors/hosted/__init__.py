"""A door that goes out: serves an environment of Anthropic's Managed Agents, with the fleet's tools.

It claims sessions of that environment's work queue, makes each custom tool use one call of the fleet, and posts the
results. Needs the `anthropic` extra, which its wire alone imports.
"""

from __future__ import annotations

from toolfleet.orchestrator.doors.hosted.definitions import definitions
from toolfleet.orchestrator.doors.hosted.environment import Environment
from toolfleet.orchestrator.doors.hosted.performing import Performer
from toolfleet.orchestrator.doors.hosted.relay_model import RelayModel
from toolfleet.orchestrator.doors.hosted.wire import Wire, WorkItem

__all__ = ["Environment", "Performer", "RelayModel", "Wire", "WorkItem", "definitions"]
