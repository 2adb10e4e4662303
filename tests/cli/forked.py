"""`toolfleet …` as a real process that costs a tenth: forked from one that has read the modules (`fork_server.py`)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, AnyStr

SERVER = Path(__file__).with_name("fork_server.py")


class ForkServer:
    """One for this process, started when it is first needed, gone when the tests have ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket

    def start(self, files: Sequence[int], **asked: Any) -> tuple[int, socket.socket]:
        """A process with these streams: its id, and where its end will be told of."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._lock:
            if self._process is None:
                self._begin()
            socket.send_fds(self._door, [json.dumps(asked).encode()], [*files, theirs.fileno()])
        return int(ours.recv(64)), ours

    def end(self) -> None:
        if self._process:
            self._door.close()
            self._process.wait()
            self._process = None

    def _begin(self) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with theirs:
            self._process = subprocess.Popen([sys.executable, SERVER], stdin=theirs, env=clean, start_new_session=True)


FORK_SERVER = ForkServer()


class Forked(subprocess.Popen[AnyStr]):
    """As `subprocess.Popen`, of a command's words; its parent is the server, which tells how it has ended."""

    def _execute_child(
        self,
        args: Sequence[str],
        _executable: None,
        _preexec_fn: None,
        _close_fds: bool,
        _pass_fds: Sequence[int],
        cwd: Path,
        env: dict[str, str],
        _startupinfo: None,
        _creationflags: int,
        _shell: bool,
        *pipes_and_rest: Any,
    ) -> None:
        pipes, in_new_session = pipes_and_rest[:6], pipes_and_rest[-2]
        read, _, _, shown, _, complained = pipes
        try:
            self.pid, self._end = FORK_SERVER.start(
                (read, shown, complained), words=args, folder=str(cwd), environment=env, in_new_session=in_new_session
            )
        finally:
            self._close_pipe_fds(*pipes)
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        try:
            told = self._end.recv(64, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._end.close()
        return self.pid, int(told)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode
