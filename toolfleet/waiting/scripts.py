"""The Lua of the waiting room and its gates, for the scripts that put messages in and let them go on."""

from __future__ import annotations

from typing import Final

from toolfleet.keys import Keys
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua

_IN_ANY_NAMESPACE: Final = Keys("")


def terms() -> str:
    """Return what scripts begin with, behind a clock, that let calls pass gates that are open to all of them."""
    return lua(
        __package__,
        "terms",
        LIMITS=_IN_ANY_NAMESPACE.limits(),
        HOLDERS=_IN_ANY_NAMESPACE.holders(""),
        GATE=_IN_ANY_NAMESPACE.gate(""),
    )


def gates(group: str, clock: str = CLOCK) -> str:
    """Return what scripts begin with that ask gates or move what has passed them. `group` reads every stream."""
    return lua(
        __package__,
        "gates",
        before=f"{clock}\n{terms()}",
        GROUP=group,
        JOB=_IN_ANY_NAMESPACE.job(""),
        RESULT=_IN_ANY_NAMESPACE.result(""),
    )


def places() -> str:
    """Return what scripts begin with that free places themselves, before they ask a room."""
    keys = _IN_ANY_NAMESPACE
    constants = {"HOLDERS": keys.holders(""), "ROOM_CALLS": keys.room_calls(""), "QUEUE": way_in()["QUEUE"]}
    return lua(__package__, "home", **constants)


def way_in() -> dict[str, str]:
    """Return the constants of scripts that look for themselves whether anybody waits, before they ask a room."""
    keys = _IN_ANY_NAMESPACE
    return {
        "QUEUE": keys.queue("", 0).removesuffix(":0"),
        "TENANTS": keys.tenants(),
        "ROOM": keys.room(""),
        "ROOM_CALLS": keys.room_calls(""),
        "SCHEDULED": keys.scheduled(""),
    }


def slots(clock: str = CLOCK) -> str:
    """Return what scripts begin with that ask how many calls a queue's workers take."""
    return lua(__package__, "slots", before=clock)


def words(clock: str = CLOCK) -> str:
    """Return what scripts begin with that end a worker's word on how many calls it takes."""
    room_workers = _IN_ANY_NAMESPACE.room_workers("")
    return lua(__package__, "words", before=clock, ROOM_WORKERS=room_workers, **way_in())


def entering() -> str:
    """Return what scripts begin with, behind a room, that let many messages wait at once."""
    return lua(__package__, "entering")


def room(group: str, clock: str = CLOCK) -> str:
    """Return what scripts begin with that let messages wait or go on. A test gives them a `clock` of its own."""
    keys = _IN_ANY_NAMESPACE
    return lua(
        __package__,
        *("home", "slots", "words", "room", "turns", "lines", "aside", "alone", "moving", "mending", "freeing"),
        before=gates(group, clock),
        **way_in(),
        CANCELLED=keys.cancelled(""),
        COUNTERS=keys.counters(),
        CLAIM=keys.claim(""),
        ROOM_WORKERS=keys.room_workers(""),
        ROOM_TURNS=keys.room_turns("", 0).removesuffix(":0"),
        ROOM_SHARES=keys.room_shares("", 0).removesuffix(":0"),
        ROOM_FLOWS=keys.room_flows("", 0, "").removesuffix(":0:"),
        ROOM_LINE=keys.room_line("", "").removesuffix(":"),
        ROOM_RUNS=keys.room_runs(""),
        ROOM_ASIDE=keys.room_aside("", "").removesuffix(":"),
        ROOM_OPENINGS=keys.room_openings(""),
        ROOM_ENDS=keys.room_ends(""),
        ROOM_TOLD=keys.room_told(""),
        LIMITS_SAID=keys.limits_said(),
    )
