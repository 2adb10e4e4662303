"""Names that every party of the transport must agree on: the group, the pseudo consumer, priorities, this process.

No I/O, and no kombu: workers' settle scripts import from here.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from enum import IntEnum
from functools import lru_cache
from typing import Final

GROUP: Final = "workers"
"""The one consumer group of every queue's streams."""

RETURNED: Final = "@returned"
"""The pseudo consumer that holds what was handed back or taken from the dead, until a worker takes it."""

OFFERED: Final = "@offered/"
"""How the pseudo consumers begin that hold what is offered to workers over HTTPS and not acknowledged yet."""

_LANE: Final = re.compile(r"(?P<home>.+)\.lane-[0-9a-f]{12}")


def lane_name(queue: str, digest: str) -> str:
    """Return the lane of a queue for the consumers that share `digest`, 12 hexadecimal digits."""
    return f"{queue}.lane-{digest}"


@lru_cache
def home_of(name: str) -> str | None:
    """Return the queue that a lane belongs to; None for what is no lane."""
    match = _LANE.fullmatch(name)
    return match["home"] if match else None


class Priority(IntEnum):
    """Levels of a queue; a lower one is always served first, as in kombu's Redis transport."""

    INTERACTIVE = 0
    """Somebody waits for the answer."""
    NORMAL = 3
    """The default."""
    BATCH = 6
    """Work that may wait for all other."""


class _ProcessName:
    """A name for this process: no other process, and no fork of this one, ever has the same."""

    def __init__(self) -> None:
        self._pid = 0
        self._name = ""

    def __call__(self) -> str:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._name = f"{socket.gethostname()}-{self._pid}-{secrets.token_hex(4)}"
        return self._name


consumer_name = _ProcessName()
"""The consumer that this process is, on every connection and across reconnects."""
