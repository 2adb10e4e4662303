"""Tools that wait on threads."""

import os
import threading
import time
from pathlib import Path

from toolfleet import tool

MANY = 100
all_are_there = threading.Barrier(MANY)


@tool(blocking="thread", timeout_s=30, read_only=True)
def meets() -> str:
    """Wait until as many calls run in this process at once."""
    all_are_there.wait(20)
    return "met"


@tool(blocking="thread", timeout_s=0.3, read_only=True)
def hangs(until: str) -> None:
    """Wait for longer than it may."""
    wait_for(until)


@tool(blocking="thread", timeout_s=60)
def waits(number: int, ledger: str, until: str) -> int:
    """Write that it has begun, and wait."""
    with Path(ledger).open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    wait_for(until)
    return number


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.05)
