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


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Return whether this error, or what it comes from, says that there was no file descriptor left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            return True
        error = error.__cause__ or error.__context__
    return False


def until_descriptors_are_free(at_each_look: Callable[[], object]) -> None:
    """Return when some can be had; log once if that takes a while. `at_each_look` may raise, to wait no longer."""
    has_told = False
    while not _are_free():
        if not has_told:
            log.error("out_of_file_descriptors", remedy=REMEDY)
            has_told = True
        at_each_look()
        time.sleep(LOOK_EVERY_S)


def _are_free() -> bool:
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
