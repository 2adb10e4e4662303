"""Work on a stranger's data, done in a child process that can be ended: bounded in time and in memory.

A thread cannot be stopped, and one that holds the interpreter's lock stops every other call of its worker. Knows no
pack: a function of a module, and plain arguments.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process
from anyio.lowlevel import RunVar

from toolfleet import ToolError

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")

AT_ONCE: Final = 4
"""Children of one worker. Whoever comes later waits for a free one, which does not count into its time."""

MEMORY_BYTES: Final = 1 << 30
"""Of addresses, a child's interpreter and libraries (a fifth of it) included."""

_children: RunVar[CapacityLimiter] = RunVar("children of the packs")
"""Of each event loop its own: a worker's loop may be run again."""


class TookTooLong(ToolError):
    """The child was ended because its time was over."""


async def in_bounded_child(for_s: float, what: str, function: Callable[[*Arguments], R], *arguments: *Arguments) -> R:
    """Return what a function of a module gives, run in a child process with a limit on time and memory.

    The child is kept for the next call. Raises what the function raises; TookTooLong when `for_s` was not enough, and
    the child is killed; ToolError, which says `what` was done, when it needed too much memory or did not survive.
    """
    async with _limiter():
        try:
            with anyio.fail_after(for_s):
                return await to_process.run_sync(
                    _within_limits,
                    function,
                    arguments,
                    for_s,
                    MEMORY_BYTES,
                    cancellable=True,
                    limiter=CapacityLimiter(1),
                )
        except TimeoutError:
            raise TookTooLong(f"{what} took longer than {for_s:g} s") from None
        except MemoryError:
            raise ToolError(f"{what} needs more than {MEMORY_BYTES >> 20} MiB of memory") from None
        except (BrokenWorkerProcess, KeyboardInterrupt):
            raise ToolError(f"{what} ended the process that did it") from None


def _limiter() -> CapacityLimiter:
    try:
        return _children.get()
    except LookupError:
        limiter = CapacityLimiter(AT_ONCE)
        _children.set(limiter)
        return limiter


def _within_limits(function: Callable[..., R], arguments: tuple[Any, ...], for_s: float, memory_bytes: int) -> R:
    """Runs in the child, whose output is its answer."""
    # Ctrl-C goes to every process of a terminal; the worker decides how its children end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ValueError, OSError):  # where a platform has no such limit
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))
    # For a child whose worker was killed: nobody else would end it.
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + for_s) + 2, hard))
    return function(*arguments)
