"""For tests of your own tools: one tool without a fleet, stored runs again, and faults on purpose in a real fleet.

A lone tool is called by the worker's own code; fleets are real processes and a real server, no doubles. The suite in
`tests/faults` stands on the same pieces; docs/testing.md shows how to use them. Nothing in production imports this
package.
"""

from __future__ import annotations

from toolfleet.points import Point
from toolfleet.testing.fates import clock_offset, kill_at, stop_at
from toolfleet.testing.faulty_network import Proxy
from toolfleet.testing.faulty_server import FaultyServer
from toolfleet.testing.lone_tool import RecordingContext, call, context
from toolfleet.testing.mortal_fleet import MortalFleet
from toolfleet.testing.replays import replayed

__all__ = [
    "FaultyServer",
    "MortalFleet",
    "Point",
    "Proxy",
    "RecordingContext",
    "call",
    "clock_offset",
    "context",
    "kill_at",
    "replayed",
    "stop_at",
]
