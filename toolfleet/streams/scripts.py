"""The Lua scripts, by name. Each opens with what it does, its keys and its arguments."""

from __future__ import annotations

import hashlib
from typing import Final

from toolfleet.scripts import lua
from toolfleet.streams.names import GROUP
from toolfleet.waiting import scripts as waiting

GATES: Final = waiting.gates(GROUP)
ROOM: Final = waiting.room(GROUP)

FETCH: Final = lua(__package__, "fetch", before=ROOM)
PUBLISH: Final = lua(__package__, "publish", before=ROOM)
CARRY: Final = lua(__package__, "carry")
"""Lua: what a message becomes that goes on elsewhere; goes with gates.lua."""

FORWARD: Final = lua(__package__, "carry", "forward", before=GATES)
KEEP_LANE: Final = lua(__package__, "keep_lane")
RETIRE_LANE: Final = lua(__package__, "carry", "retire_lane", before=GATES)
PARK: Final = lua(__package__, "park")
BURY: Final = lua(__package__, "bury", before=ROOM)
PURGE: Final = lua(__package__, "purge")
PURGE_ROOM: Final = lua(__package__, "purge_room", before=ROOM)
SWEEP: Final = lua(__package__, "release", "sweep")
LEAVE: Final = lua(__package__, "release", "leave")

FETCH_SHA: Final = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
"""How Redis names the script; the evented connection calls it by this."""
