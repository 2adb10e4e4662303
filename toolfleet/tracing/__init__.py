"""Traces: what a run and its calls leave for OpenTelemetry, where its user has set that up. A leaf: it knows no room.

Rules: nothing of OpenTelemetry is imported unless this process has its SDK already (`found.py`); without it each place
pays one comparison. What crosses a process or a restart is a `Trace`, a plain record inside what is signed or sealed.
"""

from toolfleet.tracing.found import find_tracing
from toolfleet.tracing.trace import Trace

__all__ = ["Trace", "find_tracing"]
