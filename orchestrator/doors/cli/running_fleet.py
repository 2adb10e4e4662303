"""The one `toolfleet up` of a fleet on this machine: who it is, and how another one asks it to leave.

Its owner holds a file lock, which the kernel takes back however the owner ends; the record beside it is for people.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self
from urllib.parse import urlsplit

import psutil
from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, ValidationError

from toolfleet.connections import address
from toolfleet.errors import ServerNotStarted
from toolfleet.orchestrator.doors.cli.wording import moment, span
from toolfleet.orchestrator.errors import FleetRunsAlready
from toolfleet.settings import Settings

LOOK_EVERY_S: Final = 0.1

LEAVES_WITHIN_S: Final = 60.0
"""What a fleet needs beyond its workers' grace to stop in order: handing over runs, requests, the server's file."""


CLOCK_MAY_JUMP_S: Final = 60.0
"""The same process's beginning is told differently after the machine's clock was set."""


class FleetRecord(BaseModel):
    """A running `toolfleet up`: what it serves, and where."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int
    process_began_unix_s: float
    tools: tuple[str, ...]
    pools: dict[str, int]
    namespace: str
    redis: str
    api: str = ""
    flower: str = ""

    @classmethod
    def of_this_process(cls, settings: Settings, **facts: Any) -> Self:
        """Make the record of the calling process."""
        began = psutil.Process().create_time()
        redis = address(settings.redis_url)
        return cls(pid=os.getpid(), process_began_unix_s=began, namespace=settings.namespace, redis=redis, **facts)

    def is_alive(self) -> bool:
        """Return whether this very process runs; its number may be a stranger's by now."""
        with suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.process_began_unix_s) < CLOCK_MAY_JUMP_S
        return False

    def __str__(self) -> str:
        """Return it for people, in one line."""
        pools = ", ".join(f"{count} {pool}" for pool, count in self.pools.items() if count)
        since = f"{moment(self.process_began_unix_s)} UTC ({span(time.time() - self.process_began_unix_s)} ago)"
        facts = [
            f"pid {self.pid}, since {since}",
            f"tools {', '.join(self.tools)}",
            f"workers {pools or 'none'}",
            f"namespace {self.namespace}",
            f"API {self.api or 'none'}",
        ]
        return "; ".join(facts)


class FleetLock:
    """The right to be the `toolfleet up` of this fleet on this machine."""

    def __init__(self, settings: Settings) -> None:
        url = settings.redis_url
        fleet = f"{address(url)}?{urlsplit(url).query} {settings.namespace}"
        stem = hashlib.sha256(fleet.encode()).hexdigest()[:16]
        self._settings = settings
        self._directory = user_data_path("toolfleet") / "fleets"
        self._lock = self._directory / f"{stem}.lock"
        self._record = self._directory / f"{stem}.json"

    @contextmanager
    def held(self, *, replaces: bool, say: Callable[[str], None]) -> Iterator[Self]:
        """Hold the lock to the end of the block. With `replaces`, ask its holder to stop and wait until it has.

        Raises FleetRunsAlready with who holds it.
        """
        with self._open() as lock:
            if not _try_to_take(lock):
                if not replaces:
                    raise FleetRunsAlready(f"a fleet runs already: {self.record() or 'it is just starting'}")
                self._wait_for_its_end(lock, say)
            self._record.unlink(missing_ok=True)
            try:
                yield self
            finally:
                self._record.unlink(missing_ok=True)

    def write(self, record: FleetRecord) -> None:
        """Write down who holds the lock, for others to read; half a record is never seen."""
        draft = self._record.with_suffix(".new")
        draft.write_text(record.model_dump_json())
        draft.replace(self._record)

    def record(self) -> FleetRecord | None:
        """Return what the holder has written down, None if it has not yet."""
        with suppress(OSError, ValidationError):
            record = FleetRecord.model_validate_json(self._record.read_text())
            if record.is_alive():
                return record
        return None

    @contextmanager
    def _open(self) -> Iterator[int]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ServerNotStarted(f"{self._lock} cannot be written ({error.strerror}): set XDG_DATA_HOME") from error
        try:
            yield lock
        finally:
            os.close(lock)

    def _wait_for_its_end(self, lock: int, say: Callable[[str], None]) -> None:
        give_up_at = time.monotonic() + self._settings.shutdown_grace_s + LEAVES_WITHIN_S
        asked = 0
        while not _try_to_take(lock):
            holder = self.record()
            if holder and holder.pid != asked:
                say(f"Asking the fleet that runs (pid {holder.pid}) to stop; its running calls may end first.")
                with suppress(ProcessLookupError):
                    os.kill(holder.pid, signal.SIGTERM)
                asked = holder.pid
            if time.monotonic() > give_up_at:
                raise FleetRunsAlready(f"the fleet that runs does not stop; end it by hand: {holder or 'unknown'}")
            time.sleep(LOOK_EVERY_S)


def _try_to_take(lock: int) -> bool:
    """Take the lock if nobody holds it. Returns whether it was taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
