"""What every script that ends a call does in the end, as Lua that such scripts begin with.

Whom `tell.lua` tells, it decides alone; nothing here knows of queues, jobs or workers.
"""

from __future__ import annotations

from typing import Final

from toolfleet.keys import REPLIES_MAX, REPLIES_TTL_S, RESULT_TTL_S, Keys
from toolfleet.scripts import lua

_IN_ANY_NAMESPACE: Final = Keys("")

TELL: Final = lua(
    "toolfleet",
    "tell",
    REPLIES=_IN_ANY_NAMESPACE.replies(""),
    ORCHESTRATOR=_IN_ANY_NAMESPACE.orchestrator(""),
    HEAD=_IN_ANY_NAMESPACE.head(""),
    RESULTS=_IN_ANY_NAMESPACE.result(""),
    SETTLED=_IN_ANY_NAMESPACE.calls_settled(),
    REPLIES_MAX=REPLIES_MAX,
    REPLIES_TTL_S=REPLIES_TTL_S,
    RESULT_TTL_MS=RESULT_TTL_S * 1000,
)
"""Lua: `settle`, its parts and `tell`, and the constants that say how long what they write is kept."""

CLOCK: Final = lua("toolfleet", "clock")
"""Lua: `now_ms`, by the server's clock, the only one that schedules and leases are kept by."""

REPLACE_RESULT: Final = lua("toolfleet", "replace_result", before=TELL)
"""Lua: puts a true result in the place of one that nobody of the fleet has sealed."""
