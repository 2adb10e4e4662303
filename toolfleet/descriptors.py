"""File descriptors, of which a process, or its machine, may have none left for a while: known, told of and waited for.

Knows errors of the system, and nothing of who needs the descriptors.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import Final

from toolfleet.logs import FactLog

log = FactLog("toolfleet")

NEEDED: Final = 8
"""What a worker opens as it connects again: two pollers and a few connections."""

LOOK_EVERY_S: Final = 0.2

REMEDY: Final = "raise the limit of open files (ulimit -n), or close what a tool leaves open"


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether this error, or the one that it was made of, says that there was no file descriptor left."""
    # No further back: what is raised as something is tried again stands behind what the last try has met.
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return any(isinstance(each, OSError) and each.errno in {errno.EMFILE, errno.ENFILE} for each in (error, origin))


def until_descriptors_are_free(at_each_look: Callable[[], object]) -> None:
    """Return when some can be had; log once if that takes a while. `at_each_look` may raise, to wait no longer."""
    has_told = False
    while not are_free():
        if not has_told:
            log.error("out_of_file_descriptors", remedy=REMEDY)
            has_told = True
        at_each_look()
        time.sleep(LOOK_EVERY_S)


def are_free() -> bool:
    """Return whether a few can be had now."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(NEEDED))
    except OSError as error:
        if not is_out_of_descriptors(error):
            raise
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True
