"""Starts `toolfleet`, and scripts that use it, in processes that have its modules loaded: forks of `loaded_command.py`.

There is one of these for each process of tests.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import IO, Final

PROGRAM: Final = Path(__file__).with_name("loaded_command.py")

LOOKED_AT_FIRST: Final = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC_", "OTEL_", "SSL_", "OPENSSL_")
"""Variables by which an interpreter, or what it loads, goes when it begins."""


class LoadedCommand:
    """One command or script that was started so. It is to be waited for."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._code: int | None = None
        self.pid = self._hear()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, or minus the signal that it was killed with."""
        if self._code is None:
            self._told.settimeout(timeout)
            self._code = self._hear()
            self._told.close()
        return self._code

    def poll(self) -> int | None:
        """The same if it has ended by now."""
        has_ended = self._code is not None or select([self._told], [], [], 0)[0]
        return self.wait() if has_ended else None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """It has ended now, and so have those of its group if it had not."""
        if self._code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def _hear(self) -> int:
        said = b""
        while not said.endswith(b"\n"):
            if not (byte := self._told.recv(1)):
                raise EOFError("the process with the modules has ended")
            said += byte
        return int(said)


class Loaded:
    """The process that has the modules loaded. It is started when the first command is, and ends with whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket

    def loads_for(self, variables: Mapping[str, str]) -> bool:
        """Whether a command with these variables begins as any other does."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return _looked_at_first(variables) == _looked_at_first(ours)

    def start(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], streams: Sequence[int]
    ) -> LoadedCommand:
        """`toolfleet …`, or a script of the folder, with these as its standard input, output and error."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            self._begin()
            socket.send_fds(self._requests, [b"."], [*streams, theirs.fileno()])
        asked = {"words": list(words), "folder": str(folder), "variables": dict(variables)}
        ours.sendall(json.dumps(asked).encode() + b"\n")
        return LoadedCommand(ours)

    def run(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], *, said: str = "", within_s: float
    ) -> subprocess.CompletedProcess[str]:
        """The same to its end, which comes in time; told this on its standard input."""
        with TemporaryFile() as out, TemporaryFile() as err:
            theirs, ours = os.pipe()
            command = self.start(words, folder, variables, (theirs, out.fileno(), err.fileno()))
            os.close(theirs)
            with suppress(BrokenPipeError), os.fdopen(ours, "w") as to_it:
                to_it.write(said)
            try:
                code = command.wait(within_s)
            finally:
                command.end()
            return subprocess.CompletedProcess(words, code, _text_of(out), _text_of(err))

    def end(self) -> None:
        """All its commands have ended by now."""
        if self._process:
            self._requests.close()
            self._process.wait()
            self._process = None

    def _begin(self) -> None:
        if self._process:
            return
        self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            ours = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLEET_", "PYTHON"))}
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdin=theirs, env=ours, start_new_session=True
            )


def _text_of(file: IO[bytes]) -> str:
    """What was written to it, as a pipe in text mode would have given it."""
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _looked_at_first(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(LOOKED_AT_FIRST)}


LOADED: Final = Loaded()
