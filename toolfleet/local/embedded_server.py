"""The embedded server: a real Valkey with an append-only file, for those who bring no Redis of their own.

Joins the server of a data directory, or orders a new one from `toolfleet.local.server_keeper`, which owns the process.
Whether an embedded server is wanted at all is decided elsewhere.
"""

from __future__ import annotations

import errno
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from platformdirs import user_data_path

from toolfleet.errors import ServerNotStarted
from toolfleet.local import server_keeper
from toolfleet.local.allocator import environment_with_allocator
from toolfleet.local.server_keeper import LOCK, LOG, Orders, make_private
from toolfleet.local.server_layout import KEEPER_SOCKET, LOOPBACK, Layout, choose_port, sockets_folder

LOG_LINES_SHOWN: Final = 8

REMEDY: Final = (
    "set XDG_DATA_HOME to a folder that you may write, or TOOLFLEET_REDIS_URL to a Redis or Valkey server of yours"
)
"""For a data directory that cannot be used, as in a home that is read-only."""

RETRY_EVERY_S: Final = 0.02
"""While another user's keeper starts or ends on the same directory."""


class EmbeddedServer:
    """A server that runs while anybody on this machine uses its directory.

    The first to start it brings it up, further ones share it, the last to stop it takes it down; a user that is killed
    counts as stopped. Ctrl-C does not reach it, and after a crash it is started again. The data stays in `data_dir`
    (append-only file, on disk every second; default: the user's data directory) unless the server is `temporary`.

    `port=None` listens on a Unix socket that only this user can open, `port=0` on a free loopback port.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        *,
        temporary: bool = False,
        timeout_s: float = 30.0,
    ) -> None:
        if temporary and data_dir is not None:
            raise ValueError("a temporary server makes a directory of its own: leave out data_dir")
        self._data_dir = data_dir
        self._port = port
        self._temporary = temporary
        self._timeout_s = timeout_s
        self._membership: Membership | None = None

    @property
    def url(self) -> str:
        """Where it answers, as redis-py takes it. Raises ServerNotStarted unless it is started."""
        return self._member().url

    @property
    def directory(self) -> Path:
        """Where its data and its log are. Raises ServerNotStarted unless it is started."""
        return self._member().directory

    def start(self) -> Self:
        """Return when the server takes commands.

        Raises PortInUse, and ServerNotStarted for all else, with the directory, the process or the log's last lines.
        """
        if self._membership is None:
            directory = self._make_directory()
            try:
                self._membership = _join_or_order(directory, self._port, self._timeout_s, temporary=self._temporary)
            except OSError as error:
                remedy = f": {REMEDY}" if isinstance(error, PermissionError) or error.errno == errno.EROFS else ""
                raise ServerNotStarted(
                    f"the embedded server in {directory} cannot be started ({error}){remedy}"
                ) from error
            finally:
                if self._temporary and self._membership is None:
                    shutil.rmtree(directory)
        return self

    def join(self) -> bool:
        """Become a user of the server if it runs already, and say whether it does. Starts nothing, makes no directory.

        Raises ServerNotStarted when its keeper runs and does not answer.
        """
        if self._membership is None:
            try:
                self._membership = _join(self.place, self._timeout_s)
            except OSError as error:
                raise ServerNotStarted(f"the embedded server in {self.place} cannot be joined: {error}") from error
        return self._membership is not None

    @property
    def place(self) -> Path:
        """The directory that it is kept in unless it is temporary, whether or not it runs or was ever made."""
        return (self._data_dir or user_data_path("toolfleet")).expanduser().resolve()

    def stop(self) -> None:
        """Leave. If nobody else uses the server, it has stopped and its data is on disk when this returns."""
        membership, self._membership = self._membership, None
        if membership is not None:
            membership.leave()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _member(self) -> Membership:
        if self._membership is None:
            raise ServerNotStarted("the embedded server is not started: call start(), or enter it with `with`")
        return self._membership

    def _make_directory(self) -> Path:
        if self._temporary:
            return Path(tempfile.mkdtemp(prefix="toolfleet-")).resolve()
        directory = self.place
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ServerNotStarted(f"the data directory {directory} cannot be made ({error}): {REMEDY}") from error
        return directory


class Membership:
    """One user's connection to the keeper: the server runs as long as one is open."""

    def __init__(self, connection: socket.socket, directory: Path, url: str) -> None:
        self._connection = connection
        self.directory = directory
        self.url = url

    def leave(self) -> None:
        """Say goodbye and wait for the keeper's, which the last user gets when the server has stopped."""
        with self._connection as connection, suppress(OSError):  # a keeper that was killed says nothing
            connection.settimeout(None)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass


def _join_or_order(directory: Path, port: int | None, timeout_s: float, *, temporary: bool) -> Membership:
    """Become a user of the directory's server, whoever starts it."""
    sockets = sockets_folder(directory)
    make_private(sockets)
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        with ExitStack() as unless_member:
            connection, ordered = _knock(sockets), False
            if connection is None:
                layout = Layout(directory, sockets, choose_port(port))
                connection, ordered = _order_keeper(layout, temporary=temporary), True
            unless_member.enter_context(connection)
            said = _listen(connection, directory, timeout_s)
            if "url" in said:
                _check_port(port, said["url"], directory)
                unless_member.pop_all()
                return Membership(connection, directory, said["url"])
            if "failed" in said or (ordered and not said):
                reason = said.get("failed", "its keeper ended")
                raise ServerNotStarted(
                    f"the embedded server in {directory} did not start: {reason}{_log_of(directory)}"
                )
        # Another keeper has the directory and is about to open its door, or to go.
        time.sleep(RETRY_EVERY_S)
    raise ServerNotStarted(_unanswered(directory))


def _join(directory: Path, timeout_s: float) -> Membership | None:
    """Become a user of the directory's server; None if nobody keeps one there."""
    sockets = sockets_folder(directory)
    if not sockets.is_dir():
        return None
    make_private(sockets)  # a socket in somebody else's folder is not ours to trust
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        connection = _knock(sockets)
        if connection is None:
            return None
        with ExitStack() as unless_member:
            unless_member.enter_context(connection)
            said = _listen(connection, directory, timeout_s)
            if "url" in said:
                unless_member.pop_all()
                return Membership(connection, directory, said["url"])
        # Its keeper was about to end, or did not get the server to start: the door closes in a moment.
        time.sleep(RETRY_EVERY_S)
    raise ServerNotStarted(_unanswered(directory))


def _knock(sockets: Path) -> socket.socket | None:
    """Return a connection to the keeper that runs; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(sockets / KEEPER_SOCKET))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _order_keeper(layout: Layout, *, temporary: bool) -> socket.socket:
    """Return a connection to a new keeper, which detaches itself from this process."""
    ours, theirs = socket.socketpair()
    with theirs, (layout.directory / LOG).open("ab") as log, ExitStack() as unless_ordered:
        unless_ordered.enter_context(ours)
        orders = Orders(
            channel=theirs.fileno(),
            directory=str(layout.directory),
            door=str(layout.door),
            url=layout.url,
            address=layout.address,
            command=layout.command,
            environment=environment_with_allocator(),
            temporary=temporary,
        )
        subprocess.run(  # noqa: S603  # this interpreter, a file of this package
            [sys.executable, "-IS", server_keeper.__file__, json.dumps(asdict(orders))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=layout.directory,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            check=False,  # it answers, or its end is seen on the socket
        )
        unless_ordered.pop_all()
    return ours


def _listen(connection: socket.socket, directory: Path, timeout_s: float) -> dict[str, str]:
    """Return what the keeper says, which is once the server answers; nothing if it ends without a word."""
    connection.settimeout(timeout_s)
    try:
        with connection.makefile("rb") as lines:
            line = lines.readline()
    except TimeoutError:
        raise ServerNotStarted(_unanswered(directory)) from None
    except ConnectionError:
        return {}
    said: dict[str, str] = json.loads(line or b"{}")
    return said


def _check_port(asked: int | None, url: str, directory: Path) -> None:
    if asked and not url.startswith(f"redis://{LOOPBACK}:{asked}/"):
        raise ServerNotStarted(
            f"the server of {directory} runs already, at {url}: stop it first, or do not ask for port {asked}"
        )


def _unanswered(directory: Path) -> str:
    with suppress(OSError):
        keeper = (directory / LOCK).read_text() or "unknown"
        return (
            f"{directory} belongs to the server of process {keeper}, which does not answer: "
            "end that process, or choose another data directory"
        )
    return f"the embedded server in {directory} does not answer"


def _log_of(directory: Path) -> str:
    """Return the end of the server's log, for a message."""
    try:
        lines = (directory / LOG).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    shown = "\n  ".join(lines[-LOG_LINES_SHOWN:])
    return f"\nThe last lines of {directory / LOG}:\n  {shown}" if lines else ""
