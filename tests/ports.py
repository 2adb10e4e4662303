"""Ports for processes that are started later."""

from __future__ import annotations

import random
import socket
from typing import Final

FIRST, LAST = 20_000, 32_000
"""Below what Linux and macOS give to sockets that name no port, so no server of another test takes one meanwhile."""

_TRIED: Final = random.SystemRandom()  # each process of the suite picks its own, whatever seed its tests set
_GIVEN: Final[set[int]] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, and that this process is given once."""
    while True:
        port = _TRIED.randint(FIRST, LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port
