"""What a command says while it stops, to whoever sits before it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def say_last(text: str) -> None:
    """Write a line to standard error where that is a terminal; elsewhere each line of it is a program's to read.

    Raises nothing: the terminal may be gone as well, and what stops is to stop in order.
    """
    stderr = sys.__stderr__
    with suppress(OSError, ValueError):  # gone, or closed
        if stderr is not None and stderr.isatty():
            # Past its buffer: what stayed in there would end the process with an error of its own.
            os.write(stderr.fileno(), f"{text}\n".encode())
