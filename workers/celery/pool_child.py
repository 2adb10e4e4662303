"""A child process of a pool: it ends with its worker, however that ended and whenever.

Where the kernel can (Linux), Celery has it kill a child when its worker dies, but asks for that a moment after the
fork: a worker that was killed in between left children behind. They inherit each other's pipes, so that none of them
hears that its own has ended, and waited for a call for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery.concurrency import asynpool


class PoolChild(asynpool.Worker):  # type: ignore[misc]  # celery ships no types
    """What runs in a child. The pool says whose it is and which pipes there are before it forks."""

    worker_pid: int | None = None
    """None for a child that is no fork, and has inherited nothing."""
    pipes: Iterable[tuple[Any, ...]] = ()
    """Those of all children: in and out and, where each call is confirmed, a third."""

    def after_fork(self) -> None:
        """End with the worker from here on, also if it has ended already."""
        self._close_ends_of_others()
        super().after_fork()  # which has the kernel kill this process when its worker dies
        if self.worker_pid not in (None, os.getppid()):
            os._exit(1)

    def _close_ends_of_others(self) -> None:
        """Leave the worker the only one at the other end of each child's pipes: they end when it does."""
        own = {id(pipe) for pipe in (self.inq, self.outq, self.synq)}
        for pipe in [pipe for pipes in self.pipes for pipe in pipes if pipe is not None and id(pipe) not in own]:
            for end in (pipe._reader, pipe._writer):
                with suppress(OSError):  # one that is closed already
                    end.close()
        if self.synq is not None:
            self.synq._writer.close()
