"""Tools that must not be repeated, and write in a ledger of the test's who did what: the worker's pid, and a word."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import psutil

from toolfleet import tool


def _write(ledger: str, line: str) -> None:
    with Path(ledger).open("a", encoding="utf-8") as book:
        book.write(f"{line}\n")


def _worker() -> int:
    """Return the process whose fork server has forked this one."""
    return psutil.Process(os.getppid()).ppid()


@tool
async def note(ledger: str, what: str) -> str:
    """Have an effect, after a moment."""
    await asyncio.sleep(0.02)
    _write(ledger, f"{os.getpid()} {what}")
    return f"noted {what}"


@tool(queue="cpu")
def note_in_process(ledger: str, what: str) -> str:
    """The same, in a process of its own."""
    time.sleep(0.02)
    _write(ledger, f"{_worker()} {what}")
    return f"noted {what}"


@tool(queue="long", timeout_s=3600)
def job(ledger: str, what: str, seconds: float = 0.0, until: str = "") -> str:
    """Have two effects, so many seconds apart, and the second one not before there is such a file."""
    begun_s = time.monotonic()
    _write(ledger, f"{_worker()} begin {what}")
    while time.monotonic() - begun_s < seconds or (until and not Path(until).exists()):
        time.sleep(0.02)
    _write(ledger, f"{_worker()} end {what}")
    return f"done {what}"
