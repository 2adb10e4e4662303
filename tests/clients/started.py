"""Programs that are clients: processes in environments of their own, spoken to in lines of JSON."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients import environments
from toolfleet.supervision import start_thread

PROGRAMS = Path(__file__).with_name("programs")
ANSWERS_WITHIN_S = 60
FOREIGN = ("OPENAI_", "TOOLFLEET_", "ANTHROPIC_", "LITELLM_", "PYTHON", "NODE_", "HTTP_PROXY", "HTTPS_PROXY")


ALONE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Has LiteLLM ask nobody for today's prices."""


def own_environment() -> dict[str, str]:
    """This process's variables, without those that lead a client elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(FOREIGN)}


def python(_folder: Path, program: str) -> list[str]:
    """The command of a program that runs beside the tests."""
    return [sys.executable, str(PROGRAMS / program)]


def litellm(_folder: Path, program: str) -> list[str]:
    """The command of a program that runs with LiteLLM."""
    return [str(environments.litellm() / "bin" / "python"), str(PROGRAMS / program)]


def node(folder: Path, program: str) -> list[str]:
    """The command of a program that runs on Node, copied to where it finds its packages."""
    packages = folder / "node_modules"
    if not packages.exists():
        packages.symlink_to(environments.node_modules())
    for source in PROGRAMS.glob("*.mjs"):
        (folder / source.name).write_text(source.read_text())
    return [str(environments.NODE), str(folder / program)]


@dataclass(frozen=True)
class Client:
    """One client: how its program is started, and with which words."""

    name: str
    command: Callable[[Path, str], list[str]]
    program: str
    words: tuple[str, ...] = ()


def each_of(clients: Sequence[Client]) -> pytest.MarkDecorator:
    """Have tests with the fixture `client` for each of these."""
    return pytest.mark.parametrize(
        "client", clients, ids=[each.name for each in clients], indirect=True, scope="module"
    )


class Started:
    """Such a program while it runs."""

    def __init__(self, client: Client, process: subprocess.Popen[str]) -> None:
        self.client = client
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        start_thread(client.name, self._listen, again=False)

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """What came of this."""
        assert self._process.stdin
        print(json.dumps({"do": do, **more}), file=self._process.stdin, flush=True)
        line = self._lines.get(timeout=ANSWERS_WITHIN_S)
        assert line, f"{self.client.name} has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


@contextmanager
def started(client: Client, folder: Path, variables: Mapping[str, str]) -> Iterator[Started]:
    """The program of a client, which has ended after the block."""
    command = [*client.command(folder, client.program), *client.words]
    environment = {**own_environment(), **ALONE, **variables}
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Started(client, process)
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(ANSWERS_WITHIN_S)
            finally:
                process.kill()
