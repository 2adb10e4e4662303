"""When calls of limited tools began and ended, written by the tools themselves, and what that says of the limits.

The file outlives workers and servers, and its order is that of the writes: one each, at the end of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PLACES: Final = 3
PLACES_IN_PROCESSES: Final = 1
RATE_PER_S: Final = 8
BURST: Final = 2

BEGINS: Final = "begins"
ENDS: Final = "ends"


class Line(NamedTuple):
    """One line of the ledger."""

    what: str
    tool: str
    nonce: str
    at_s: float


def note(ledger: str, what: str, tool: str, nonce: str) -> None:
    """Write a line. By the clock of the machine, which all of its processes share."""
    line = f"{what} {tool} {nonce} {time.time()}\n".encode()
    file = os.open(path_of(ledger), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def path_of(ledger: str | Path) -> str:
    """Where the limits' ledger is, beside that of the effects."""
    return f"{ledger}.limits"


def lines_of(ledger: str | Path) -> list[Line]:
    """What was written."""
    path = Path(path_of(ledger))
    words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Line(what, tool, nonce, float(at_s)) for what, tool, nonce, at_s in words]


def most_at_once(lines: Iterable[Line], tool: str) -> int:
    """How many calls of a tool ran at the same time at most. One that begins again, as its worker was lost, is one."""
    running: set[str] = set()
    most = 0
    for line in lines:
        if line.tool != tool:
            continue
        if line.what == BEGINS:
            running.add(line.nonce)
        else:
            running.discard(line.nonce)
        most = max(most, len(running))
    return most


def most_in_a_second(lines: Iterable[Line], tool: str) -> int:
    """How many calls of a tool began within any second at most. One that begins again was let in before."""
    begun: dict[str, float] = {}
    for line in lines:
        if line.tool == tool and line.what == BEGINS:
            begun.setdefault(line.nonce, line.at_s)
    return _most_within(sorted(begun.values()), 1.0)


def _most_within(times: Sequence[float], span: float) -> int:
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= span:
            first += 1
        most = max(most, last - first + 1)
    return most
