"""The Lua scripts, by name. Each opens with what it does, its keys and its arguments."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final


def _read(*names: str) -> str:
    folder = files("toolfleet.streams").joinpath("lua")
    return "\n".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)


FETCH: Final = _read("fetch")
PUBLISH: Final = _read("publish")
PUBLISH_IN_LANES: Final = _read("publish_in_lanes")
FORWARD: Final = _read("carry", "forward")
KEEP_LANE: Final = _read("keep_lane")
RETIRE_LANE: Final = _read("carry", "retire_lane")
PARK: Final = _read("park")
BURY: Final = _read("bury")
PURGE: Final = _read("purge")
SWEEP: Final = _read("release", "sweep")
LEAVE: Final = _read("release", "leave")

FETCH_SHA: Final = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
"""How Redis names the script; the evented connection calls it by this."""
