"""docker-compose.yml as Compose reads it, and its commands as processes of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import yaml

from toolfleet.keys import Keys

ROOT = Path(__file__).parents[2]

UP_WITHIN_S = 60
DOWN_WITHIN_S = 30

VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::(?P<sign>[-?])(?P<rest>[^}]*))?\})")
"""Compose's own syntax: $$, ${NAME}, ${NAME:-default}, ${NAME:?error}."""


class VariableMissing(Exception):
    """Compose would refuse the file: a required variable is not set."""


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    return VARIABLE.sub(lambda found: _replaced(found, variables), value) if isinstance(value, str) else value


def _replaced(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["escaped"]:
        return "$"
    if set_to := variables.get(found["name"]):
        return set_to
    if found["sign"] == "?":
        raise VariableMissing(found["rest"])
    return found["rest"] or ""


@dataclass(frozen=True)
class Service:
    """One service of the file: what it runs, in which environment, and how its health is asked."""

    name: str
    command: list[str]
    environment: dict[str, str]
    health: list[str]
    spec: dict[str, Any]

    @contextmanager
    def running(self, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Its command as a process of this machine, which has ended afterwards, and an empty /tmp as a container's."""
        forget_signs(self.environment["TOOLFLEET_ALIVE_DIR"])
        with subprocess.Popen(
            self.command,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                forget_signs(self.environment["TOOLFLEET_ALIVE_DIR"])

    def is_healthy(self, **environment: str) -> bool:
        """What its health check says, asked once."""
        kind, *check = self.health
        command = ["sh", "-c", *check] if kind == "CMD-SHELL" else check
        asked = subprocess.run(
            command, env=self.environment | environment, capture_output=True, timeout=60, check=False
        )
        return asked.returncode == 0


def forget_signs(folder: str) -> None:
    """Delete the files that say that a process works."""
    for file in Path(folder).glob("*"):
        file.unlink(missing_ok=True)


def read_compose(variables: Mapping[str, str], path: Path = ROOT / "docker-compose.yml") -> dict[str, Any]:
    """The file with its variables filled in. Raises VariableMissing."""
    file: dict[str, Any] = interpolated(yaml.safe_load(path.read_text()), variables)
    return file


def wait_until_healthy(service: Service, process: subprocess.Popen[str]) -> None:
    """As Docker does: ask again and again, with the service's own health check."""
    give_up = time.monotonic() + UP_WITHIN_S
    while not service.is_healthy():
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < give_up, f"{service.name} did not become healthy"
        time.sleep(0.1)


def stopped(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and its words, after SIGTERM, as `docker compose stop` sends it."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=DOWN_WITHIN_S)
    return process.returncode, output


def wait_until_announced(name: str, redis_url: str, process: subprocess.Popen[str]) -> None:
    """The worker's own health check takes seconds to say no, so it is asked once, when the answer should be yes."""
    give_up = time.monotonic() + UP_WITHIN_S
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        while f"{name}@{os.uname().nodename}" not in client.zrange(Keys().workers(), 0, -1):
            assert process.poll() is None, process.stdout and process.stdout.read()
            assert time.monotonic() < give_up, f"{name} did not announce itself"
            time.sleep(0.05)
