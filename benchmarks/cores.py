"""On which cores processes run: where the system puts them, or where they are told to stay.

Which of them share a core makes a tenth of a lone call's time and a quarter of a busy fleet's rate, and the system
decides it anew from one second to the next.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


def cores() -> list[int]:
    """The cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def put_on_cores(places: Mapping[int, Collection[int]]) -> None:
    """Have the threads of each process stay on some cores; those that they start later inherit that."""
    for pid, allowed in places.items():
        with suppress(FileNotFoundError):  # the process has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):  # the thread has
                    os.sched_setaffinity(int(thread.name), allowed)


@contextmanager
def with_a_core_of_their_own(processes: Iterable[int], *, beside: Iterable[int]) -> Iterator[None]:
    """Have some processes share one core while the block runs, and others have the rest; all go free afterwards.

    Where there is one core only, or the system does not say, nothing changes.
    """
    own, others, every = list(processes), list(beside), cores()
    if len(every) < 2:
        yield
        return
    put_on_cores({**dict.fromkeys(own, every[-1:]), **dict.fromkeys(others, every[:-1])})
    try:
        yield
    finally:
        put_on_cores(dict.fromkeys((*own, *others), every))
