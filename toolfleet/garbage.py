"""The garbage collector of a command and of a service: rare passes that skip what is there for good."""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 20, 100)
"""Allocations between two passes over the youngest objects, and passes of one generation between two of the next.

Calls make few reference cycles and many short-lived objects; with Python's own thresholds (700, 10, 10) a fifth of a
worker's processor time goes into passes that find nothing. That memory stays flat, `make bench` measures.
"""


def begin_rarely() -> None:
    """Make passes rare while a command loads its modules: what they make stays, and passes took a tenth of its start.

    For the whole process, before its imports; the commands of toolfleet do.
    """
    gc.set_threshold(*THRESHOLDS)


def collect_rarely() -> None:
    """Keep the modules and tools that are loaded out of all further passes, and make passes rare.

    For the whole process, so call it where a service starts, after its imports; the commands of toolfleet do.
    """
    if gc.get_threshold() != THRESHOLDS:
        gc.collect()  # who began rarely has dropped little, and to look for it takes a twentieth of a start
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
