"""The processes that a tool has started, so that they end with it: killing a process leaves its children alive.

Only for tools in a process of their own; who shares a process with others cannot be told whose children are whose.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """The processes below this one, as they are now; none if it is gone. Each knows itself from a later namesake."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those that are still there."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
