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
CLAIM_NEWS: Final = lua(__package__, "claim_news")


def _sha(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


FETCH_SHA: Final = _sha(FETCH)
CLAIM_NEWS_SHA: Final = _sha(CLAIM_NEWS)
"""How Redis names these scripts: connections that wait call them by that."""
