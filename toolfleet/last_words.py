"""What a command says while it stops, to whoever sits before it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def say_last(text: str) -> None:
    """Write a line to standard error where that is a terminal; elsewhere each line of it is a program's to read.

    Raises nothing: the terminal may be gone as well, and what stops is to stop in order.
    """
    with suppress(OSError, ValueError, AttributeError):  # gone, closed, or never there
        if sys.__stderr__.isatty():  # type: ignore[union-attr]  # as above
            # Past its buffer: what stayed in there would end the process with an error of its own.
            os.write(sys.__stderr__.fileno(), f"{text}\n".encode())  # type: ignore[union-attr]  # as above
