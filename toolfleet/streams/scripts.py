"""The Lua scripts, by name. Each opens with what it does, its keys and its arguments."""

from __future__ import annotations

import hashlib
from typing import Final

from toolfleet.scripts import lua

FETCH: Final = lua(__package__, "fetch")
PUBLISH: Final = lua(__package__, "publish")
PUBLISH_IN_LANES: Final = lua(__package__, "publish_in_lanes")
FORWARD: Final = lua(__package__, "carry", "forward")
KEEP_LANE: Final = lua(__package__, "keep_lane")
RETIRE_LANE: Final = lua(__package__, "carry", "retire_lane")
PARK: Final = lua(__package__, "park")
BURY: Final = lua(__package__, "bury")
PURGE: Final = lua(__package__, "purge")
SWEEP: Final = lua(__package__, "release", "sweep")
LEAVE: Final = lua(__package__, "release", "leave")

FETCH_SHA: Final = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
"""How Redis names the script; the evented connection calls it by this."""
