"""What a command says while it stops, to whoever is still there."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def say_last(text: str) -> None:
    """Write a line to standard error, if anybody reads that. Raises nothing: what stops is to stop in order.

    Ctrl-C also ends what the command's output goes through (`toolfleet serve 2>&1 | tee log`).
    """
    if sys.__stderr__ is not None:
        with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
            # Past its buffer: what stayed in there would end the process with an error of its own.
            os.write(sys.__stderr__.fileno(), f"{text}\n".encode())
