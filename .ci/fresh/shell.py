"""A user's shell on the fresh machine: commands outside the repository, and nothing left behind by them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from account import Account

ENDS_WITHIN_S = 180
GONE_WITHIN_S = 60
MARK = "FRESH_MACHINE"


class Shell:
    """Runs `toolfleet …` as the account, in a folder of its own. Leaving it, no process and no file may be left."""

    def __init__(self, binaries: Path, account: Account, folder: Path) -> None:
        self._binaries = binaries
        self._account = account
        self.folder = account.give(folder / "here")
        self.data = account.give(folder / "data")
        self._home = folder / "home"
        self._home.mkdir(exist_ok=True)
        self._home.chmod(0o555)  # and it is not the user's own
        self._mark = secrets.token_hex(4)
        self._temporary = account.give(folder / f"tmp-{self._mark}")
        self.environment = {
            **account.environment,
            "PATH": f"{binaries}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self._home),
            "XDG_DATA_HOME": str(self.data),
            "TMPDIR": str(self._temporary),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            MARK: self._mark,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Whatever a failed check left is ended; a check that did not fail must have left nothing."""
        left = self._left_after(0 if error else GONE_WITHIN_S)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not error:
            assert not left, f"processes are left behind: {list(left.values())}"
            files = sorted(path.name for path in self._temporary.iterdir())
            assert not files, f"files are left in the temporary directory: {files}"

    def says(
        self, expected: str, *words: str, status: int = 0, said: str | None = None, home_only: bool = False
    ) -> str:
        """What `toolfleet …` printed: it ended with this status, and these words were there."""
        environment = dict(self.environment)
        if home_only:
            del environment["XDG_DATA_HOME"]
        with self._process(*words, environment=environment) as process:
            out, _ = process.communicate(said, timeout=ENDS_WITHIN_S)
        told = f"toolfleet {' '.join(words)} ended with status {process.returncode}:\n{out}"
        assert process.returncode == status, told
        assert expected in out, f"{expected!r} is missing; {told}"
        assert "Traceback" not in out, told
        return out

    @contextmanager
    def running(self, ready: str, *words: str, status: int = 130) -> Iterator[str]:
        """`toolfleet …` from the line that says that it is ready to Ctrl-C; what it said until then.

        What says no such line (`ready` is empty) is a service, and is stopped as services are, by SIGTERM.
        """
        with self._process(*words, environment=self.environment) as process:
            told = f"toolfleet {' '.join(words)}"
            out = _until(ready, process, told) if ready else ""
            yield out
            assert process.poll() is None, f"{told} ended by itself:\n{out}"
            if ready:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the whole group
            else:
                process.terminate()
            rest, _ = process.communicate(timeout=ENDS_WITHIN_S)
            assert process.returncode == status, f"{told} ended with status {process.returncode}:\n{out}{rest}"
            assert "Traceback" not in out + rest, f"{told} said:\n{out}{rest}"

    @contextmanager
    def _process(self, *words: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [self._binaries / "toolfleet", *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **self._account.popen,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def _left_after(self, seconds: float) -> dict[int, str]:
        give_up = time.monotonic() + seconds
        while (left := self._processes()) and time.monotonic() < give_up:
            time.sleep(0.1)
        return left

    def _processes(self) -> dict[int, str]:
        """Those that this shell's commands started, at whatever remove (Linux; elsewhere there is no /proc to ask)."""
        ours: dict[int, str] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                    ours[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return ours


def _until(ready: str, process: subprocess.Popen[str], told: str) -> str:
    """What a process prints up to the line that begins like this."""
    lines: list[str] = []
    assert process.stdout
    too_late = threading.Timer(ENDS_WITHIN_S, process.kill)
    too_late.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith(ready):
                return "".join(lines)
    finally:
        too_late.cancel()
    raise AssertionError(f"{told} did not say {ready!r} within {ENDS_WITHIN_S} s, but:\n{''.join(lines)}")
