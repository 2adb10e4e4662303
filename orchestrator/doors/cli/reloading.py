"""`toolfleet up --reload`: workers of the new code in the place of the old ones, when the tools' files change.

The old workers stay until the new ones serve, and then end their calls as at any stop. It is said once they read no
more: from then on calls meet the new code. Orchestrators import no tool, so there is nothing of theirs to reload.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from toolfleet.errors import ExtraMissing, StoreUnreachable, ToolfleetError
from toolfleet.local.fleet import LocalFleet
from toolfleet.local.worker_process import WorkerProcess, stop_workers
from toolfleet.supervision import start_thread

REMEDY: Final = "--reload needs `pip install 'toolfleet[reload]'`"

LOOK_EVERY_MS: Final = 200

WATCHES_WITHIN_S: Final = 10.0
"""A large package takes a moment; what is saved before that may be missed."""

NEW_ONES_STOP_WITHIN_S: Final = 5.0

READS_NO_MORE_WITHIN_S: Final = 15.0
"""How long it is waited for that an old worker reads no more; one whose tool blocks it takes some seconds."""


class Places(NamedTuple):
    """What is watched: packages with all that is in them, and folders of single files."""

    packages: frozenset[Path]
    folders: frozenset[Path]


def places_of(modules: Sequence[str]) -> Places:
    """Find where the code of these modules lies, without importing it; what cannot be found is left out."""
    packages: set[Path] = set()
    folders: set[Path] = set()
    sys.path.insert(0, str(Path.cwd()))  # where workers look first
    try:
        for top in {module.partition(".")[0] for module in modules}:
            spec = importlib.util.find_spec(top)
            if spec and spec.submodule_search_locations:
                packages.update(Path(each) for each in spec.submodule_search_locations)
            elif spec and spec.origin:
                folders.add(Path(spec.origin).parent)
    finally:
        sys.path.pop(0)
    return Places(frozenset(packages), frozenset(folders))


@contextmanager
def watching(modules: Sequence[str]) -> Iterator[threading.Event]:
    """Yield an event that is set whenever Python files beside the modules change. Raises InvalidSettings."""
    if importlib.util.find_spec("watchfiles") is None:
        raise ExtraMissing(REMEDY)
    places = places_of(modules)
    changed, stop = threading.Event(), threading.Event()
    threads = []
    for paths, recursive in ((places.packages, True), (places.folders, False)):
        if paths:
            watched = threading.Event()
            threads.append(start_thread("reload", _watch, paths, recursive, changed, stop, watched))
            watched.wait(WATCHES_WITHIN_S)
    try:
        yield changed
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _watch(
    paths: frozenset[Path],
    recursive: bool,  # noqa: FBT001  # a thread's arguments
    changed: threading.Event,
    stop: threading.Event,
    watched: threading.Event,
) -> None:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415  # an extra

    changes = watch(
        *paths,
        watch_filter=PythonFilter(),
        stop_event=stop,
        recursive=recursive,
        raise_interrupt=False,
        rust_timeout=LOOK_EVERY_MS,
        yield_on_timeout=True,  # the first one says that it watches
    )
    for found in changes:
        watched.set()
        if found:
            changed.set()


class Reloader:
    """Exchanges the workers of one fleet."""

    def __init__(self, fleet: LocalFleet, *, grace_s: float) -> None:
        """`grace_s`: how long one that was asked to stop may take."""
        self._fleet = fleet
        self._pools = Counter(worker.pool for worker in fleet.workers)
        self._grace_s = grace_s
        self._leaving: list[WorkerProcess] = []

    def reload(self, say: Callable[[str], None]) -> None:
        """Put new workers in the place of the old ones. If they cannot serve, the old ones stay, and it is said why."""
        try:
            self._exchange()
        except ToolfleetError as error:
            stay = [worker.name for worker in self._fleet.workers]
            on = "go on" if len(stay) > 1 else "goes on"
            say(f"Not reloaded; {', '.join(stay) or 'no worker'} {on} until the next change: {error}")
            return
        late = self._still_serving()
        for worker in self._fleet.workers:
            say(f"worker:  {worker.name} (pid {worker.pid}), reloaded")
        for worker in late:
            say(f"{worker.name} (pid {worker.pid}) of the old code does not stop yet, and may still take calls")

    def stop(self) -> None:
        """Wait until no exchanged worker is left. They were asked to stop: asked again, they would end their calls."""
        give_up_at = time.monotonic() + self._grace_s
        try:
            for worker in self._leaving:
                with suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, give_up_at - time.monotonic()))
        finally:
            for worker in self._leaving:
                if worker.is_running:
                    worker.kill()

    def _exchange(self) -> None:
        """Start new workers beside the old ones, which then leave. Leaves no new one that does not serve.

        Raises WorkerNotReady, StoreUnreachable. A tool whose schema has changed is served in both versions meanwhile.
        """
        old = list(self._fleet.workers)
        for pool, how_many in (Counter(worker.pool for worker in old) or self._pools).items():
            for _ in range(how_many):
                self._fleet.start_worker(pool)
        new = [worker for worker in self._fleet.workers if worker not in old]
        try:
            self._fleet.wait_until_ready()
        except ToolfleetError:
            self._fleet.workers[:] = old
            stop_workers(new, grace_s=NEW_ONES_STOP_WITHIN_S)
            raise
        self._let_go(old)

    def _let_go(self, old: Sequence[WorkerProcess]) -> None:
        """Ask workers to stop, which they do once their calls have ended. Does not wait for that."""
        self._leaving = [*(worker for worker in self._leaving if worker.is_running), *old]
        self._fleet.workers[:] = [worker for worker in self._fleet.workers if worker not in old]
        for worker in old:
            worker.ask_to_stop()

    def _still_serving(self) -> list[WorkerProcess]:
        """Wait until exchanged workers read no more. Returns those of which that cannot be said."""
        try:
            return self._fleet.still_serving(self._leaving, READS_NO_MORE_WITHIN_S)
        except StoreUnreachable:
            return [worker for worker in self._leaving if worker.is_running]
