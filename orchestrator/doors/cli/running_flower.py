"""Flower as a process of its own: started behind a login, waited for, stopped; it never outlives its starter."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import IO, Final

from toolfleet.errors import InvalidSettings, ServerNotStarted
from toolfleet.local.lifeline import lifeline
from toolfleet.orchestrator.doors.cli.ports import free_port, somebody_listens
from toolfleet.settings import Settings

AUTH_VARIABLE: Final = "TOOLFLEET_FLOWER_AUTH"

UP_WITHIN_S: Final = 60.0
DOWN_WITHIN_S: Final = 5.0
POLL_S: Final = 0.05
LOG_TAIL_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class FlowerDoor:
    """Where Flower listens, and the login (user:password) it asks for."""

    address: str
    port: int
    auth: str

    def __str__(self) -> str:
        """Return it for the user: a made-up login as it is; of one that was set, the user's name only."""
        user = self.auth.partition(":")[0]
        login = f"{user}:(from {AUTH_VARIABLE})" if os.environ.get(AUTH_VARIABLE) else self.auth
        return f"http://{self.address}:{self.port}  login: {login}"

    def is_open(self) -> bool:
        """Return whether somebody listens."""
        return somebody_listens(self.address, self.port)


def flower_is_installed() -> bool:
    """Whether the extra `[flower]` is there. Asked without importing it, which takes a while."""
    return find_spec("flower") is not None


def door_at(address: str, port: int, *, remedy: str) -> FlowerDoor:
    """Find an address that nobody uses yet; its login is that of TOOLFLEET_FLOWER_AUTH, or a fresh one.

    Raises PortInUse, which names the remedy, and InvalidSettings.
    """
    auth = os.environ.get(AUTH_VARIABLE) or f"toolfleet:{secrets.token_urlsafe(9)}"
    if not all(auth.partition(":")):
        raise InvalidSettings(f"{AUTH_VARIABLE} must be user:password")
    return FlowerDoor(address, free_port(address, port, who="Flower", remedy=remedy), auth)


class RunningFlower:
    """A Flower that was started."""

    def __init__(self, door: FlowerDoor, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.door = door
        self._process = process
        self._log = log

    def wait_until_it_listens(self) -> None:
        """Wait until its page can be asked for. Raises ServerNotStarted."""
        give_up = time.monotonic() + UP_WITHIN_S
        while not self.door.is_open():
            self.check()
            if time.monotonic() > give_up:
                raise ServerNotStarted(f"Flower does not listen after {UP_WITHIN_S:g} s{self._said()}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise ServerNotStarted with its last words if it has ended."""
        if (code := self._process.poll()) is not None:
            raise ServerNotStarted(f"Flower ended with status {code}{self._said()}")

    def wait(self) -> None:
        """Wait until it ends, which it does not do by itself. Raises ServerNotStarted."""
        self._process.wait()
        self.check()

    def stop(self) -> None:
        """Stop it, at once if it does not stop by itself."""
        self._process.terminate()
        try:
            self._process.wait(DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _said(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").rstrip().splitlines()
        return "".join(f"\n{line}" for line in lines[-LOG_TAIL_LINES:])


@contextmanager
def running_flower(door: FlowerDoor, settings: Settings) -> Iterator[RunningFlower]:
    """Run Flower to the end of the block. Does not wait until it listens."""
    with tempfile.TemporaryFile() as log, lifeline() as descriptor:
        process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", "toolfleet.local.flower_process", str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[descriptor],
            start_new_session=True,
            # The login goes by the environment: a command line is visible to every user of the machine.
            env={
                **os.environ,
                **settings.as_environment(),
                "FLOWER_ADDRESS": door.address,
                "FLOWER_PORT": str(door.port),
                "FLOWER_BASIC_AUTH": door.auth,
            },
        )
        running = RunningFlower(door, process, log)
        try:
            yield running
        finally:
            running.stop()
