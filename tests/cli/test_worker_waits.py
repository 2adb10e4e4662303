"""A worker whose server goes away while it starts: it waits, as it does whenever a server is away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.cli.command import read_until
from tests.ports import free_port
from toolfleet.connections import connect
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.settings import Settings, new_secret

NODE = f"waits@{os.uname().nodename}"


def said_of(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"it has ended with {process.wait()} and never said {word}")


def test_a_server_that_goes_away_while_a_worker_starts_is_waited_for() -> None:
    port = free_port()
    settings = Settings(redis_url=f"redis://127.0.0.1:{port}/0", secret=new_secret())
    command = [sys.executable, "-P", "-m", "toolfleet.workers", "--name", "waits"]
    command += ["--import", "toolfleet.workers.packs.arithmetic"]
    with EmbeddedServer(port=port, temporary=True), connect(settings) as client:
        client.set(settings.keys.node(NODE), "another", ex=600)  # so that its start stands still here
        process = subprocess.Popen(
            command,
            env={**os.environ, **settings.as_environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said_of(process, "name_waited_for")
    with process:
        try:
            said_of(process, "server_waited_for")
            with EmbeddedServer(port=port, temporary=True):
                read_until(process, "Ready")
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
            assert process.returncode == 0
        finally:
            process.kill()
