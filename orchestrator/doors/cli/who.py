"""Who sits at this terminal, for what is written down of what people do."""

from __future__ import annotations

import getpass
import socket


def who() -> str:
    """Return this machine's user and its name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
