"""Orchestrators for callers without an event loop: scripts, notebooks, the threads of a web server.

One loop per process, in a thread of its own, started by the first caller and closed when the interpreter ends. Knows
when an orchestrator is open, never what it does.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

from toolfleet.errors import ToolfleetError
from toolfleet.event_loop import new_event_loop
from toolfleet.messages import Message
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import NotHere
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.value import Run
from toolfleet.supervision import start_thread

T = TypeVar("T")

CLOSES_WITHIN_S: Final = 15.0
"""How long the end of the interpreter waits for orchestrators to hand over and disconnect."""

CANCELLED_WITHIN_S: Final = 10.0
"""How long Ctrl-C waits until what it interrupted has been cancelled on the workers."""


class Openable(Protocol):
    """What is opened here: an orchestrator, or whatever is entered like one."""

    @property
    def is_open(self) -> bool:
        """Whether it was entered, and not left."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


class Runner(Openable, Protocol):
    """What `run_sync` needs of an orchestrator."""

    async def start(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> str:
        """Begin a run; returns its id."""

    async def wait(self, run_id: str) -> Run:
        """The run at its end."""

    async def cancel(self, run_id: str, reason: str) -> Run:
        """End the run."""


Opened = TypeVar("Opened", bound=Openable)


@exact(RunOptions)
def run_sync(orchestrator: Runner, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
    """One conversation to its end, as `Orchestrator.run`. Ctrl-C cancels it, unless it has a `run_id` to go on by.

    Raises what `run` raises, and NotHere.
    """
    return do(orchestrator, lambda fleet: _run(fleet, question, options))


def do(orchestrator: Opened, ask: Callable[[Opened], Coroutine[Any, Any, T]]) -> T:
    """What `ask` makes of the open orchestrator: `do(fleet, lambda f: f.call("add", {"a": 1, "b": 2}))`.

    The first use opens the orchestrator; it stays open until `close`, or the interpreter's end. Any number of threads
    may ask at once. Raises what `ask` raises, and NotHere.
    """
    return _background().do(orchestrator, ask)


def close(orchestrator: Openable) -> None:
    """Close an orchestrator that was opened here; its next use opens it again. Without effect on any other."""
    if _current is not None:
        _current.close_one(orchestrator)


async def _run(orchestrator: Runner, question: str | Sequence[Message], options: RunOptions) -> Run:
    run_id = await orchestrator.start(question, **options)
    try:
        return await orchestrator.wait(run_id)
    except asyncio.CancelledError:
        if not options.get("run_id"):  # with an id of its own it was meant to outlive its caller
            with suppress(ToolfleetError):
                await orchestrator.cancel(run_id, "nobody waits for it any more")
        raise


class _Background:
    """An event loop in a thread of its own, and the orchestrators that are open on it."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._open: dict[Openable, asyncio.Task[Openable]] = {}
        self._thread = start_thread("toolfleet-loop", self._loop.run_forever)

    def do(self, orchestrator: Opened, ask: Callable[[Opened], Coroutine[Any, Any, T]]) -> T:
        if threading.current_thread() is self._thread:
            raise NotHere("this code runs on the orchestrator's own event loop: await its methods")
        _must_be_ours(orchestrator)
        ended = threading.Event()
        answer = asyncio.run_coroutine_threadsafe(self._asked(orchestrator, ask, ended), self._loop)
        return _result(answer, ended)

    def close_one(self, orchestrator: Openable) -> None:
        asyncio.run_coroutine_threadsafe(self._close(orchestrator), self._loop).result()

    def close(self) -> None:
        """Close everything; the loop ends with it."""
        closing = asyncio.run_coroutine_threadsafe(self._close_all(), self._loop)
        with suppress(TimeoutError):
            closing.result(CLOSES_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._loop.close()

    async def _asked(
        self,
        orchestrator: Opened,
        ask: Callable[[Opened], Coroutine[Any, Any, T]],
        ended: threading.Event,
    ) -> T:
        try:
            await self._opened(orchestrator)
            return await ask(orchestrator)
        finally:
            ended.set()

    async def _opened(self, orchestrator: Openable) -> None:
        """Open the orchestrator, unless somebody has. The next one tries again when that failed."""
        opening = self._open.get(orchestrator)
        if opening is None:
            _opened_in[orchestrator] = os.getpid()
            # watched: whoever asks for the orchestrator awaits it
            opening = self._open[orchestrator] = asyncio.create_task(orchestrator.__aenter__())
        try:
            await asyncio.shield(opening)
        except BaseException:
            if opening.done() and (opening.cancelled() or opening.exception()):
                self._open.pop(orchestrator, None)
                _opened_in.pop(orchestrator, None)
            raise

    async def _close(self, orchestrator: Openable) -> None:
        opening = self._open.pop(orchestrator, None)
        if opening is None:
            return
        with suppress(ToolfleetError):
            await opening
            await orchestrator.__aexit__(None, None, None)
        _opened_in.pop(orchestrator, None)

    async def _close_all(self) -> None:
        await asyncio.gather(*map(self._close, list(self._open)))


def _result(answer: Future[T], ended: threading.Event) -> T:
    try:
        return answer.result()
    except KeyboardInterrupt:
        # Cancelled here is not yet cancelled on the workers, and after this the process may end.
        answer.cancel()
        ended.wait(CANCELLED_WITHIN_S)
        raise


def _must_be_ours(orchestrator: Openable) -> None:
    pid = _opened_in.get(orchestrator)
    if pid is None and orchestrator.is_open:
        raise NotHere("this Orchestrator was opened with `async with`: await its methods on that event loop")
    if pid not in (None, os.getpid()):
        raise NotHere("this Orchestrator was used before the process forked: make one in each process")


def _background() -> _Background:
    global _current  # noqa: PLW0603  # one per process is the point
    with _starting:
        if _current is None:
            _current = _Background()
        return _current


def _close_at_exit() -> None:
    global _current  # noqa: PLW0603  # one per process is the point
    if _current is not None:
        _current.close()
        _current = None


def _forget_after_fork() -> None:
    """The child has none of its parent's threads, and must not touch its connections."""
    global _current, _starting
    _current, _starting = None, threading.Lock()


_current: _Background | None = None
_starting = threading.Lock()
_opened_in: WeakKeyDictionary[Openable, int] = WeakKeyDictionary()
"""Which process opened an orchestrator here; a forked one finds its parent's."""

atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_after_fork)
