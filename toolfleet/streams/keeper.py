"""The lease of this process, kept by a companion process that nothing in this one can starve.

A blocking tool, a busy loop and C code that holds the interpreter lock all stop threads of this process, never the
companion (see `lease_keeper.py`, the program it runs). This module starts it and tells it what to look after.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kombu.log import get_logger

from toolfleet.streams.names import home_of

logger = get_logger("toolfleet.streams")

PROGRAM: Final = Path(__file__).with_name("lease_keeper.py")

RESTART_PAUSE_S: Final = 1.0
"""A companion that cannot stay alive is not started more often than this."""


class Keeper:
    """The companion of this process for one broker. All methods are for one thread, except that a fork may call any."""

    def __init__(self) -> None:
        self._pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: dict[str, Any] = {}
        self._queues: dict[str, list[str]] = {}
        self._reading: set[str] = set()
        self._started_at = float("-inf")

    def look_after(self, queue: str, streams: list[str], orders: Mapping[str, Any]) -> None:
        """Keep this process's lease, and sweep the queue, until `dismiss` or the end of this process."""
        self._orders = dict(orders)
        self._queues[queue] = streams
        if home_of(queue):
            self._reading.add(queue)
        if not self.ensure():
            self._tell(self._news)

    def leave_lanes(self) -> None:
        """Stop saying that this process reads its lanes. They are swept as before."""
        if self._reading:
            self._reading.clear()
            self._tell(self._news)

    def leave_lane(self, lane: str) -> None:
        """Stop saying that this process reads a lane. It is swept as before, until it is forgotten."""
        if lane in self._reading:
            self._reading.discard(lane)
            self._tell(self._news)

    def forget(self, lane: str) -> None:
        """Sweep a lane no more in which this process holds nothing any more."""
        if self._queues.pop(lane, None) is not None:
            self._tell(self._news)

    def ensure(self) -> bool:
        """Start the companion if it does not run. Returns whether it was started now."""
        if self._process is not None and self._pid == os.getpid() and self._process.poll() is None:
            return False
        if time.monotonic() - self._started_at < RESTART_PAUSE_S or not self._queues:
            return False
        if self._process is not None and self._pid == os.getpid():
            logger.warning("lease keeper ended with %s; starting another", self._process.poll())
        self._start()
        return True

    @property
    def streams(self) -> list[str]:
        """Return the streams that the companion sweeps."""
        return [stream for streams in self._queues.values() for stream in streams]

    @property
    def _news(self) -> dict[str, Any]:
        return {"queues": self._queues, "reading": sorted(self._reading)}

    def dismiss(self) -> None:
        """End the companion at once, when the lease has ended and this process holds nothing any more."""
        if process := self._take():
            process.kill()
            process.wait()

    def leave_to_itself(self) -> None:
        """Let the companion end the lease at this process's exit, and do not wait for long."""
        if process := self._take():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)

    def _take(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        self._queues.clear()
        self._reading.clear()
        if process is None or self._pid != os.getpid():
            return None
        atexit.unregister(self.leave_to_itself)
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended already
                process.stdin.close()
        return process

    def _start(self) -> None:
        self._pid = os.getpid()
        self._started_at = time.monotonic()
        # -P: the program's folder must not become an import path, its modules would shadow others.
        # A session of its own: a signal to the worker's group must not end the lease before the worker ends.
        self._process = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.unregister(self.leave_to_itself)
        atexit.register(self.leave_to_itself)
        self._tell({**self._orders, **self._news})

    def _tell(self, orders: Mapping[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps(orders).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            logger.warning("lease keeper does not listen; it will be replaced")
