"""Whether an address is free to listen on, and if not, who listens there."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

import psutil

from toolfleet.errors import PortInUse

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # only if the user asks for it

ANSWERS_WITHIN_S: Final = 1.0


def free_port(host: str, port: int, *, who: str, remedy: str) -> int:
    """Return the port, or a free one for 0. Raises PortInUse with who wanted it, who has it, and the remedy."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUse(
                f"{who} cannot listen on {host}:{port} ({error.strerror}{_holder(port)}); {remedy}"
            ) from None
        bound: int = probe.getsockname()[1]
        return bound


def somebody_listens(host: str, port: int) -> bool:
    """Return whether a connection is taken there."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1" if host == ANY_ADDRESS else host, port), ANSWERS_WITHIN_S).close()
        return True
    return False


def _holder(port: int) -> str:
    """Return the process that listens on the port, as far as this user may know."""
    with suppress(psutil.Error, OSError):
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
                return f" by {psutil.Process(each.pid).name()}, pid {each.pid}"
    return ""
