"""The garbage collector of a service: rare passes that skip what is there for good."""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 20, 100)
"""Allocations between two passes over the youngest objects, and passes of one generation between two of the next.

Calls make few reference cycles and many short-lived objects; with Python's own thresholds (700, 10, 10) a fifth of a
worker's processor time goes into passes that find nothing. That memory stays flat, `make bench` measures.
"""


def collect_rarely() -> None:
    """Keep the modules and tools that are loaded out of all further passes, and make passes rare.

    For the whole process, so call it where a service starts, after its imports; the commands of toolfleet do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
