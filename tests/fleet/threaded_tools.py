"""Tools on threads, some of which wait and some of which compute."""

import os
import threading
from pathlib import Path

from toolfleet import tool

MANY = 100
all_are_there = threading.Barrier(MANY)


@tool(blocking="thread", timeout_s=30, read_only=True)
def meets() -> str:
    """Wait until as many calls run in this process at once."""
    all_are_there.wait(20)
    return "met"


@tool(blocking="thread", timeout_s=60)
def computes(number: int, ledger: str, until: str) -> int:
    """Write that it has begun, and compute until a file is there."""
    with Path(ledger).open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    while not Path(until).exists():
        sum(range(1000))
    return number
