"""Ties processes to the one that started them: when that is gone, however it ended, they stop.

A pipe whose writing end only the owner holds. The kernel closes it for an owner that was killed, too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from toolfleet.supervision import start_thread


@contextmanager
def lifeline() -> Iterator[int]:
    """The owner's side: the descriptor that started processes inherit and give to `stop_with`."""
    read_end, write_end = os.pipe()
    try:
        yield read_end
    finally:
        os.close(write_end)
        os.close(read_end)


def stop_with(descriptor: int, *, kill_after_s: float) -> None:
    """The other side: ask this process to stop (SIGTERM) once the owner is gone, and kill it if it does not."""
    # Not for the children: one that outlived us would hold nothing open, but must not signal a stranger's pid either.
    os.set_inheritable(descriptor, False)
    start_thread("lifeline", _wait, descriptor, os.getpid(), kill_after_s)


def _wait(descriptor: int, pid: int, kill_after_s: float) -> None:
    os.read(descriptor, 1)
    os.kill(pid, signal.SIGTERM)
    time.sleep(kill_after_s)
    if os.getpgid(pid) == pid:
        # The leader of a group of its own takes its pool's processes along.
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
