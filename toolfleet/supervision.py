"""What a process begins for itself has a name, is watched, and does not end unseen: tasks that last, errands, threads.

Whatever one of them raises is logged and counted, and what is to last begins again. The one room that may start tasks
and threads without awaiting them; a test finds them elsewhere. Knows nothing of what they do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from toolfleet.logs import FactLog

log = FactLog("toolfleet")

Work = Callable[[], Coroutine[Any, Any, None]]

FIRST_PAUSE_S: Final = 0.1
"""Before what has failed begins again; twice as long each time, up to the last."""

LAST_PAUSE_S: Final = 5.0

WELL_AFTER_S: Final = 1.0
"""How long, or as long as its last pause, something runs before it counts as well again."""

CANCEL_AGAIN_S: Final = 0.5
"""How long a task may take to stop before it is cancelled once more: redis-py can lose a cancellation that comes
together with a reply."""

_failed = Counter[str]()
_errands: set[asyncio.Task[None]] = set()


def failures() -> Mapping[str, int]:
    """Return how often each kind of task or thread of this process has failed."""
    return MappingProxyType(_failed)


def failed(name: str, error: BaseException, **fields: Any) -> None:
    """Log and count that something of this process's own has failed in a way that nobody foresaw."""
    _failed[name] += 1
    log.error("task_failed", task=name, times=_failed[name], exc_info=error, **fields)


class Supervisor:
    """Keeps up tasks that are to last, of any number of event loops. `ailing` says which of them are down."""

    def __init__(self) -> None:
        self._ailing: dict[str, str] = {}

    @property
    def ailing(self) -> Mapping[str, str]:
        """What is down now, and what it has failed with."""
        return dict(self._ailing)

    def keep(self, name: str, work: Work) -> Kept:
        """Do this on the running loop until it returns or `Kept.aclose`; whatever it raises, it begins again."""
        return Kept(name, work, self._ailing)


class Kept:
    """One task that is kept up."""

    def __init__(self, name: str, work: Work, ailing: dict[str, str]) -> None:
        self._name = name
        self._work = work
        self._ailing = ailing
        self._recovering: asyncio.TimerHandle | None = None
        self._last_error = ""
        self._task = asyncio.create_task(self._keep_up(), name=name)

    async def ended(self, *, within_s: float) -> None:
        """Return when it has ended by itself, or after so long."""
        await asyncio.wait([self._task], timeout=within_s)

    async def aclose(self, *, within_s: float | None = None) -> None:
        """End it. Returns when it has ended, or after so long."""
        await stop(self._task, within_s=within_s)
        self._is_well()

    async def _keep_up(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                await self._work()
            except asyncio.CancelledError as cancelled:
                if is_asked_to_stop():
                    raise
                error: BaseException = cancelled  # its own
            except Exception as raised:  # noqa: BLE001  # nothing that a listener meets may end the listening
                error = raised
            else:
                self._is_well()
                return
            if time.monotonic() - began_s > LAST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            self._is_down(error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            # Still down by then if it fails at once.
            self._recovering = asyncio.get_running_loop().call_later(max(WELL_AFTER_S, pause_s), self._is_well)

    def _is_down(self, error: BaseException) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
        said = f"{type(error).__name__}: {error}"[:500]
        self._ailing[self._name] = said
        if said == self._last_error:  # the stack is in the log already
            _failed[self._name] += 1
            log.error("task_failed", task=self._name, times=_failed[self._name], error=said)
        else:
            failed(self._name, error)
        self._last_error = said

    def _is_well(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
        self._ailing.pop(self._name, None)


def run_errand(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Do this once, beside other work. The task never raises: what it meets is logged and counted."""
    task = asyncio.create_task(_watched(name, work), name=name)
    _errands.add(task)  # the loop itself holds tasks weakly
    task.add_done_callback(_errands.discard)
    return task


async def _watched(name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  # nobody awaits it who could be told
        failed(name, error)


async def stop(task: asyncio.Task[None], *, within_s: float | None = None) -> None:
    """Cancel a task, again where that is lost. Returns when it has ended, or after so long."""
    give_up_s = None if within_s is None else time.monotonic() + within_s
    while not task.done() and (give_up_s is None or time.monotonic() < give_up_s):
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)


def is_asked_to_stop() -> bool:
    """Return whether the running task was cancelled by somebody else, and not by what it awaits."""
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())


class Errands:
    """Errands of one owner, who waits for them in the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin with this work, and return at once. Nobody hears how it ends but the log."""
        task = run_errand(self._name, work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def aclose(self, *, within_s: float) -> None:
        """Let all work end, for a moment; then stop what is left of it."""
        if not self._under_way:
            return
        _, late = await asyncio.wait(self._under_way, timeout=within_s)
        for task in late:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*late, return_exceptions=True)


def start_thread(name: str, work: Callable[..., object], *arguments: Any, again: bool = True) -> threading.Thread:
    """Do this on a thread that keeps no process alive. Whatever it raises, it begins again, unless told not to."""
    thread = threading.Thread(target=_keep_up, args=(name, work, arguments, again), name=name, daemon=True)
    thread.start()
    return thread


def _keep_up(name: str, work: Callable[..., object], arguments: tuple[Any, ...], again: bool) -> None:  # noqa: FBT001  # a thread's arguments
    pause_s = FIRST_PAUSE_S
    while True:
        began_s = time.monotonic()
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001  # SystemExit too would end a thread without a word
            if time.monotonic() - began_s > LAST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            failed(name, error)
            if not again:
                return
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        else:
            return
