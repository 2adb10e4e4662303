"""The `toolfleet` command as people start it: a process of its own, in a folder and a data directory of this test."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.cli.loaded import LOADED
from toolfleet.exit_status import ExitStatus

TOOLFLEET = str(Path(sys.executable).with_name("toolfleet"))

ENDS_WITHIN_S = 100
GONE_WITHIN_S = 60

MARK = "CLI_TEST_MARK"
FOREIGN = ("TOOLFLEET_", "OPENAI_", "ANTHROPIC_", "FLOWER_", "CELERY_", "PYTHON")


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def complaint(self) -> str:
        """The one clear line of a command that was given something wrong."""
        assert self.code in {ExitStatus.FAILED, ExitStatus.CONFIGURATION}, self
        assert "Traceback" not in self.out + self.err, self
        [line] = [line for line in self.err.splitlines() if line.startswith("toolfleet")]
        return line


@dataclass(frozen=True)
class Terminal:
    """One user's terminal: a current folder, a data directory, and variables of its own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def write(self, name: str, text: str) -> str:
        """A module in the current folder; gives back its file's path."""
        (self.folder / f"{name}.py").write_text(text)
        return str(self.folder / f"{name}.py")

    def run(self, *words: str, said: str | None = None, **variables: str) -> Ended:
        """Run `toolfleet …` to its end; nothing that it started may be left."""
        said_by_it = self.say(*words, said=said, **variables)
        self.until_nothing_is_left()
        return said_by_it

    def say(self, *words: str, said: str | None = None, **variables: str) -> Ended:
        """Run `toolfleet …` to its end, beside others that go on."""
        environment = self.environment(**variables)
        if not LOADED.loads_for(environment):
            with self.start(*words, **variables) as process:
                out, err = process.communicate(said, timeout=ENDS_WITHIN_S)
            return Ended(process.returncode, out, err)
        forked = LOADED.run(words, self.folder, environment, said=said or "", within_s=ENDS_WITHIN_S)
        return Ended(forked.returncode, forked.stdout, forked.stderr)

    @contextmanager
    def start(
        self, *words: str, program: Sequence[str] = (TOOLFLEET,), **variables: str
    ) -> Iterator[subprocess.Popen[str]]:
        """`toolfleet …`, which has ended after the block."""
        with subprocess.Popen(
            [*program, *words],
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def environment(self, **variables: str) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return {
            **ours,
            "XDG_DATA_HOME": str(self.folder / "data"),
            MARK: self.mark,
            "COLUMNS": "160",  # a table's cells are not to be folded
            **self.variables,
            **variables,
        }

    def until_nothing_is_left(self, *but: int) -> None:
        """Wait until no process runs that this terminal's commands started, at whatever remove."""
        give_up = time.monotonic() + GONE_WITHIN_S
        while left := [process for process in self._processes() if process.pid not in but]:
            assert time.monotonic() < give_up, [process.cmdline() for process in left if process.is_running()]
            time.sleep(0.05)

    def _processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        return False


def read_until(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """The lines that a command prints, up to the one that begins like this."""
    lines: list[str] = []
    assert process.stdout
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(beginning):
            return lines
    raise AssertionError(f"ended without saying {beginning!r}: {lines} {process.stderr and process.stderr.read()}")


def interrupted(process: subprocess.Popen[str]) -> Ended:
    """The command after Ctrl-C, which a terminal sends to the whole foreground group."""
    os.killpg(process.pid, signal.SIGINT)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=ENDS_WITHIN_S)
    return Ended(process.returncode, out, err)
