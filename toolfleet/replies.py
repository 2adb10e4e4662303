"""What every script that ends a call does in the end, as Lua that such scripts begin with.

Whom `tell.lua` tells, it decides alone; nothing here knows of queues, jobs or workers.
"""

from __future__ import annotations

from typing import Final

from toolfleet.scripts import wire_library, wire_script

TELL: Final = wire_library("tell")
"""Lua: `settle`, its parts and `tell`, and the constants that say how long what they write is kept."""

CLOCK: Final = wire_library("clock")
"""Lua: `now_ms`, by the server's clock, the only one that schedules and leases are kept by."""

REPLACE_RESULT: Final = wire_script("replace_result")
"""Lua: puts a true result in the place of one that nobody of the fleet has sealed."""

ROOM: Final = f"{wire_library('room')}\n{wire_library('carry')}"
"""Lua: the waiting rooms of queues, and what a message becomes in another place."""
