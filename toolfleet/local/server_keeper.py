"""Keeps one embedded server running for as long as somebody uses it, then stops it gracefully and ends.

A program of its own, detached and in its own session: neither Ctrl-C nor the `kill -9` of a user reaches it. It imports
the standard library only, so that it is up within milliseconds; `embedded_server.py` starts it and is its only client.

A user is one connected Unix socket. The keeper writes one JSON line to it when the server answers; whatever happens on
the socket after that means that the user is gone (the kernel closes it for one that was killed). The last user's socket
stays open until the server has stopped: its end of file says "your data is on disk".
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LOCK = "keeper.lock"
LOG = "valkey.log"

ANSWER_WITHIN_S = 10.0
"""A server that neither answers nor loads its file after this long has failed. Loading may take any time."""

STOP_WITHIN_S = 30.0
"""A server that has not written its file by then is killed."""

LOOK_EVERY_S = 0.5
"""How soon a server that died is noticed and started again."""

LOG_MAX_BYTES = 8 * 1024 * 1024
"""A larger log is emptied at the next start."""

PR_SET_PDEATHSIG = 1


class ServerRefused(Exception):
    """The server cannot be kept; the text says why."""


@dataclass(frozen=True)
class Orders:
    """What to keep: `command` is the server's, `address` the Unix socket where it answers.

    `channel` is the starter's socket, inherited; `door` the path where further users knock; `environment` what the
    server has beside the starter's.
    """

    channel: int
    directory: str
    door: str
    url: str
    address: str
    command: list[str]
    environment: dict[str, str]
    temporary: bool


class KeptServer:
    """The server's process, and the lock on its directory, which it inherits.

    Should the keeper be killed, the directory stays locked until the server is gone too: two never write one file.
    """

    def __init__(self, orders: Orders, lock: int) -> None:
        self._orders = orders
        self._lock = lock
        self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  # the command comes from toolfleet.local.embedded_server
            self._orders.command,
            env={**os.environ, **self._orders.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=[self._lock],
            preexec_fn=end_with_parent,  # noqa: PLW1509  # safe: this process has one thread
        )

    @property
    def pid(self) -> int:
        """The process that answers now; another one after a crash."""
        return self._process.pid

    def wait_until_it_answers(self) -> None:
        """Return when the server takes commands. Raises Refused when it ended, or neither answers nor loads."""
        give_up = time.monotonic() + ANSWER_WITHIN_S
        while (reply := ask(self._orders.address)) != b"+PONG":
            if self._process.poll() is not None:
                raise ServerRefused(f"the server ended with exit code {self._process.returncode}")
            if reply != b"-LOADING" and time.monotonic() > give_up:
                raise ServerRefused(f"the server did not answer within {ANSWER_WITHIN_S:g} seconds")
            time.sleep(0.01)

    def start_again_if_dead(self) -> None:
        """Bring a crashed server back: its append-only file has all but the last second."""
        if self._process.poll() is not None:
            self._process = self._launch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the server after it has written its file."""
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Keep the server that the first argument orders."""
    orders = Orders(**json.loads(sys.argv[1]))
    if os.fork():
        # Detached: the starter may leave while others still use the server, and must not have to reap this process.
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    users = [socket.socket(fileno=orders.channel)]
    try:
        keep(orders, users)
    except (ServerRefused, OSError) as error:
        say(users[0], failed=str(error))
    # `users` still holds the last one's socket: it closes with this process, when all is done.


def keep(orders: Orders, users: list[socket.socket]) -> None:
    """Run the server until its last user is gone. Raises Refused, OSError."""
    directory = Path(orders.directory)
    lock = take_lock(directory)
    if lock is None:
        say(users[0], busy=True)
        return
    empty_a_long_log()
    with listening(Path(orders.door), directory) as door, KeptServer(orders, lock) as server:
        server.wait_until_it_answers()
        with suppress(SystemExit):
            serve(door, users, orders.url, server)
    if orders.temporary:
        shutil.rmtree(directory, ignore_errors=True)


def serve(door: socket.socket, users: list[socket.socket], url: str, server: KeptServer) -> None:
    """Let users in and out; return when the last one has left, whose socket stays in `users`."""
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        selector.register(users[0], selectors.EVENT_READ)
        say(users[0], url=url, pid=server.pid)
        while True:
            for key, _ in selector.select(LOOK_EVERY_S):
                if key.fileobj is door:
                    user, _ = door.accept()
                    users.append(user)
                    selector.register(user, selectors.EVENT_READ)
                    say(user, url=url, pid=server.pid)
                    continue
                if len(users) == 1:
                    return
                leaver = next(user for user in users if user is key.fileobj)
                selector.unregister(leaver)
                users.remove(leaver)
                leaver.close()
            server.start_again_if_dead()


def take_lock(directory: Path) -> int | None:
    """Return the descriptor that locks the directory, or None if another keeper or its server has it."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


@contextmanager
def listening(path: Path, directory: Path) -> Iterator[socket.socket]:
    """A socket at `path`, which is removed afterwards, and its folder too if it is not the data directory."""
    make_private(path.parent)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        try:
            yield door
        finally:
            path.unlink(missing_ok=True)
            if path.parent != directory:
                with suppress(OSError):
                    path.parent.rmdir()


def make_private(directory: Path) -> None:
    """Create the directory for this user only. Raises PermissionError if it is somebody else's."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.lstat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")


def say(user: socket.socket, **facts: object) -> None:
    """Tell one user; one that is gone already is noticed by the next look at its socket."""
    with suppress(OSError):
        user.sendall(json.dumps(facts).encode() + b"\n")


def ask(address: str) -> bytes:
    """Return the first word of the server's answer to PING; empty if it does not answer."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(1.0)
        client.connect(address)
        client.sendall(b"PING\r\n")
        return client.recv(256).partition(b" ")[0].strip()
    return b""


def end_with_parent() -> None:
    """On Linux, let the kernel stop this process when the keeper dies, however it dies.

    Elsewhere a server whose keeper was killed runs on and keeps its directory locked.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def empty_a_long_log() -> None:
    """Standard output is the log; it would grow for years."""
    if os.fstat(sys.stdout.fileno()).st_size > LOG_MAX_BYTES:
        os.ftruncate(sys.stdout.fileno(), 0)


if __name__ == "__main__":
    main()
