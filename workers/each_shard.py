"""One worker process for each shard, under one that starts them, shares out the slots and passes signals on.

A worker reads the queues of one Redis, so that a server that is away stops nobody who reads another. Knows processes,
and nothing of tools or queues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from toolfleet.exit_status import ExitStatus
from toolfleet.local.lifeline import lifeline
from toolfleet.logs import FactLog
from toolfleet.settings import Settings

log = FactLog("toolfleet.workers")

LOOK_EVERY_S: Final = 0.1
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 15.0
WELL_AFTER_S: Final = 60.0
"""Whoever has worked for so long is started again at once."""

HOPELESS: Final = (ExitStatus.USAGE, ExitStatus.CONFIGURATION)
"""How a worker ends that would end so again."""

STOPPED: Final = (ExitStatus.DONE, ExitStatus.INTERRUPTED, ExitStatus.TERMINATED, -signal.SIGTERM, -signal.SIGINT)
"""How one ends that was told to stop; it may not have been ready yet."""

PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SHARD_VARIABLE: Final = "TOOLFLEET_SHARD"


def share(slots: int, shards: int) -> int:
    """How many of the slots each shard gets: as many as the others, none of them lost, and at least one."""
    return max(1, -(-slots // shards))


def serve_each_shard(settings: Settings, words: Sequence[str], slots: int) -> int:
    """Run a worker for each shard until told to stop, and start again those that end. Returns the exit status.

    `words` are the options of each. A worker that cannot serve its shard by a wrong setting, not because the server is
    away, is not started again; with the last of them this ends as it did.
    """
    names = settings.all_shards.names
    with lifeline() as descriptor:
        each = [*words, "--concurrency", str(share(slots, len(names))), "--lifeline", str(descriptor)]
        return _Workers([_ShardWorker(name, each, descriptor) for name in names]).serve()


@dataclass(slots=True)
class _ShardWorker:
    """The worker of one shard: running, waiting to be started again, or given up."""

    shard: str
    words: Sequence[str]
    lifeline: int
    process: subprocess.Popen[bytes] | None = None
    code: int | None = None
    """How it has ended for good."""
    _due_s: float = 0.0
    _began_s: float = 0.0
    _pause_s: float = field(default=FIRST_PAUSE_S)

    def look(self) -> None:
        """Start it when it is due, and see whether it has ended."""
        if self.code is not None:
            return
        now = time.monotonic()
        if self.process is None:
            if now >= self._due_s:
                self._start(now)
            return
        code = self.process.poll()
        if code is None:
            return
        self.process = None
        if code in HOPELESS:
            self.code = code
            log.error("shard_not_served", shard=self.shard, status=code, remedy="what the worker said; then start anew")
            return
        if now - self._began_s > WELL_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        self._due_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
        log.warning("worker_ended", shard=self.shard, status=code, again_in_s=self._due_s - now)

    def _start(self, now: float) -> None:
        self._began_s = now
        self.process = subprocess.Popen(  # noqa: S603  # our own module
            # -P: a folder called `workers` beside the user must not be taken for ours.
            [sys.executable, "-P", "-m", "toolfleet.workers", *self.words],
            env={**os.environ, SHARD_VARIABLE: self.shard},
            pass_fds=[self.lifeline],
            # Signals come from us, each once.
            start_new_session=True,
        )

    def tell(self, number: int) -> None:
        """Pass a signal on, if there is somebody to hear it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> int:
        """Wait until it has ended, and return how."""
        if self.process is None:
            return ExitStatus.DONE if self.code is None else self.code
        return self.process.wait()


class _Workers:
    """The workers of all shards."""

    def __init__(self, workers: Sequence[_ShardWorker]) -> None:
        self._workers = workers
        self._told = threading.Event()

    def serve(self) -> int:
        before = {number: signal.signal(number, self._hear) for number in PASSED_ON if _is_heard(number)}
        try:
            while not self._told.is_set():
                for worker in self._workers:
                    worker.look()
                if all(worker.code is not None for worker in self._workers):
                    break
                self._told.wait(LOOK_EVERY_S)
            codes = [worker.end() for worker in self._workers]
        finally:
            for worker in self._workers:
                if worker.process is not None and worker.process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(worker.process.pid, signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
        bad = [code for code in codes if code not in STOPPED]
        return int(abs(bad[0])) if bad else ExitStatus.DONE

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._told.set()
        for worker in self._workers:
            worker.tell(number)


def _is_heard(number: int) -> bool:
    """Whether a signal may come: under nohup, and in a script's background, some are ignored."""
    return signal.getsignal(number) is not signal.SIG_IGN
