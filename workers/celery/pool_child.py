"""A child process of a pool: it ends with its worker, however that ended.

Celery's children inherit each other's pipes, so that none of them hears the end of a worker that was killed: they would
wait for its next call for ever, and one in the midst of a call would go on with it while another worker does the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from celery.concurrency import asynpool

PR_SET_PDEATHSIG: Final = 1

_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None  # before a fork: children only call


class PoolChild(asynpool.Worker):  # type: ignore[misc]  # celery ships no types
    """What runs in a child. The pool says whose it is and which pipes there are before it forks."""

    worker_pid = 0
    pipes: Iterable[tuple[Any, ...]] = ()
    """Those of all children: in and out and, where each call is confirmed, a third."""

    def after_fork(self) -> None:
        """End with the worker from here on."""
        _die_with(self.worker_pid)
        self._close_ends_of_others()
        super().after_fork()

    def _close_ends_of_others(self) -> None:
        """Leave the worker the only one at the other end of each child's pipes: they end when it does."""
        own = {id(pipe) for pipe in (self.inq, self.outq, self.synq)}
        for pipe in [pipe for pipes in self.pipes for pipe in pipes if pipe is not None and id(pipe) not in own]:
            for end in (pipe._reader, pipe._writer):
                with suppress(OSError):  # one that is closed already
                    end.close()
        if self.synq is not None:
            self.synq._writer.close()


def _die_with(worker_pid: int) -> None:
    """Have the kernel kill this process when the worker is gone, where the kernel can: on Linux.

    Elsewhere its pipes tell an idle child, and one that has a call at its end.
    """
    if _libc is not None:
        # It goes by the thread that forks, which is the worker's first: the worker does not outlive that.
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != worker_pid:  # it was gone before that was said
        os._exit(1)
