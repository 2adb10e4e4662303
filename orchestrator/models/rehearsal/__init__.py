"""The rehearsal model: a deterministic planner behind a real HTTP server that speaks Chat Completions.

It stands in for a language model where there is no key (demo, tests) and says so in every answer. The planner
(`planner`, pure) knows only the request, as a real model would; the server (`server`) knows only the wire.
"""

from toolfleet.orchestrator.models.rehearsal.faults import (
    CutStream,
    Dialect,
    Drip,
    ErrorInStream,
    ErrorStatus,
    Fault,
    Garbage,
    Hang,
)
from toolfleet.orchestrator.models.rehearsal.model import rehearsal_model
from toolfleet.orchestrator.models.rehearsal.planner import plan
from toolfleet.orchestrator.models.rehearsal.reply import REHEARSAL_MODEL
from toolfleet.orchestrator.models.rehearsal.server import RehearsalServer

__all__ = [
    "REHEARSAL_MODEL",
    "CutStream",
    "Dialect",
    "Drip",
    "ErrorInStream",
    "ErrorStatus",
    "Fault",
    "Garbage",
    "Hang",
    "RehearsalServer",
    "plan",
    "rehearsal_model",
]
