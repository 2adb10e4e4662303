"""uvicorn as this project runs it: a port of its own, streams that end when it stops, errors in one line."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

from toolfleet.errors import PortInUse

GRACE_S: Final = 5
"""How long requests may end once the server is told to stop."""

BACKLOG: Final = 4096
"""A thousand clients may come at once."""

KEEP_ALIVE_S: Final = 75
"""Longer than most proxies keep a connection: the server must not be the one that closes it under a request."""


class Server(uvicorn.Server):
    """Ends its event streams before it waits for its connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop. Listeners come back with Last-Event-ID, here or elsewhere."""
        app = self.config.app
        if isinstance(app, FastAPI) and (door := getattr(app.state, "door", None)) is not None:
            door.close_streams()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises PortInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise PortInUse(f"the API cannot listen on {host}:{port} ({error.strerror}); choose another --port") from None
    bound.set_inheritable(True)
    return bound


def server_for(app: FastAPI, *, log_level: str = "warning") -> Server:
    """A server that is not started yet; `serve(sockets=[…])` runs it until it is told to stop."""
    return Server(
        uvicorn.Config(
            app,
            log_level=log_level,
            access_log=False,
            backlog=BACKLOG,
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ws="none",
        )
    )
