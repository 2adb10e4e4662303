"""The Lua scripts of the queue, by name. Each opens with what it does, its keys and its arguments."""

from __future__ import annotations

import hashlib
from typing import Final

from toolfleet.scripts import lua, wire_library, wire_script

PUBLISH: Final = wire_script("publish")
FETCH: Final = wire_script("fetch")
FORWARD: Final = wire_script("forward")
KEEP_LANE: Final = wire_script("keep_lane")
RETIRE_LANE: Final = wire_script("retire_lane")
PARK: Final = wire_script("park")
BURY: Final = wire_script("bury")
PURGE: Final = lua(__package__, "purge")
PURGE_ROOM: Final = lua(__package__, "purge_room", before=wire_library("room"))
SWEEP: Final = wire_script("sweep")
LEAVE: Final = wire_script("leave")

FETCH_SHA: Final = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
"""How Redis names the script; the evented connection calls it by this."""
