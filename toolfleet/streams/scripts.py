"""The Lua scripts, by name. Each opens with what it does, its keys and its arguments."""

from __future__ import annotations

import hashlib
from typing import Final

from toolfleet.replies import CLOCK
from toolfleet.scripts import lua, when_called
from toolfleet.streams.names import GROUP
from toolfleet.waiting import scripts as waiting

GATES: Final = waiting.gates(GROUP)
ROOM: Final = waiting.room(GROUP)


def publish(room: str = ROOM, clock: str = CLOCK) -> str:
    """Return the script that publishes. A test gives it a room with a clock of its own."""
    in_turn = when_called(
        "publish_in_turn", lua(__package__, "publish_in_turn", before=f"{room}\n{waiting.entering()}")
    )
    queue = waiting.way_in()["QUEUE"]
    bound = when_called("publish_open", lua(__package__, "publish_open", before=waiting.terms(), QUEUE=queue))
    before = "\n".join((waiting.slots(clock), lua(__package__, "kinds"), in_turn, bound))
    return lua(__package__, "publish", before=before, **waiting.way_in())


def fetch(room: str = ROOM, clock: str = CLOCK) -> str:
    """Return the script that fetches. A test gives it a room with a clock of its own."""
    used = ("room_for", "safely", "note_worker", "move_places", "look_and_admit", "LOOK_AGAIN_LATE_MS")
    again = ("passes_rates", "put_back", "waits_for_tenant")
    before = f"{clock}\n{when_called('waiting_room', lua(__package__, 'carry', 'again', before=room), *used, *again)}"
    return lua(__package__, "fetch", before=before, GROUP=GROUP, **waiting.way_in())


PUBLISH: Final = publish()
FETCH: Final = fetch()
CARRY: Final = lua(__package__, "carry")
"""Lua: what a message becomes that goes on elsewhere; goes with gates.lua."""

FORWARD: Final = lua(__package__, "carry", "forward", before=GATES)
KEEP_LANE: Final = lua(__package__, "keep_lane")
RETIRE_LANE: Final = lua(__package__, "carry", "retire_lane", before=GATES)
PARK: Final = lua(__package__, "park")
BURY: Final = lua(__package__, "bury", before=ROOM)
PURGE: Final = lua(__package__, "purge")
PURGE_ROOM: Final = lua(__package__, "purge_room", before=ROOM)
SWEEP: Final = lua(__package__, "release", "sweep", before=waiting.words())
LEAVE: Final = lua(__package__, "release", "leave", before=waiting.words())

FETCH_SHA: Final = hashlib.sha1(FETCH.encode(), usedforsecurity=False).hexdigest()
"""How Redis names the script; the evented connection calls it by this."""
