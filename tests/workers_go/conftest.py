"""A worker in Go, as a process of its own on the session's server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workers_go.building import built
from toolfleet.catalog import Believer, read_live_workers
from toolfleet.connections import connect
from toolfleet.settings import Settings
from toolfleet.wire import Seal

TOOLS = Path(__file__).with_name("conforming_tools.go")
WITHIN_S = 30


@contextmanager
def go_worker(settings: Settings, program: Path, *, is_killed: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that has announced itself; in the end it is stopped in order, or killed."""
    secrets = {"TOOLFLEET_SECRET": settings.secret.get_secret_value()}
    said = {"TOOLFLEET_REDIS_URL": settings.redis_url, "TOOLFLEET_NAMESPACE": settings.namespace}
    process = subprocess.Popen([program], env={**os.environ, **secrets, **said})
    try:
        wait_until(lambda: any(str(process.pid) in name for name in announced(settings)))
        yield process
        if not is_killed:
            process.send_signal(signal.SIGTERM)
            process.wait(WITHIN_S)
    finally:
        process.kill()
        process.wait()


def announced(settings: Settings) -> list[str]:
    """The names of workers whose announcement is believed."""
    client = connect(settings)
    try:
        return [each.worker for each in read_live_workers(client, settings.keys, Believer(Seal(settings))).ours]
    finally:
        client.close()


def wait_until(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def program() -> Path:
    return built(TOOLS)
