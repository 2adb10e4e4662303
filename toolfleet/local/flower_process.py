"""`python -m toolfleet.local.flower_process FD`: Flower on this fleet, for as long as the other end of FD is open.

Flower's own options come by its own variables (FLOWER_PORT, FLOWER_BASIC_AUTH, …).
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from toolfleet.broker import celery_app
from toolfleet.event_loop import new_event_loop
from toolfleet.garbage import collect_rarely
from toolfleet.local.flower_broker import show_streams
from toolfleet.local.flower_events import take_events_patiently
from toolfleet.local.lifeline import stop_with
from toolfleet.settings import read_settings

KILL_AFTER_S: Final = 3.0
"""It may wait for ever for workers and a server that are gone, and has nothing to lose."""

NICENESS: Final = 5
"""Calls go first where both want the processor; of its session, `flower_events.py` sees to that."""


def main() -> None:
    """Run Flower until SIGTERM."""
    stop_with(int(sys.argv[1]), kill_after_s=KILL_AFTER_S)
    settings = read_settings()
    show_streams(settings)
    take_events_patiently()
    app = celery_app(settings)
    # Flower asks workers from many threads, each with a connection to hear and one to speak: a pool would lock up.
    app.conf.broker_pool_limit = None
    asyncio.set_event_loop(_loop_that_stands_back())
    collect_rarely()  # it keeps ten thousand tasks, and looks through them again and again else
    app.start(["--quiet", "flower"])


def _loop_that_stands_back() -> asyncio.AbstractEventLoop:
    """Return the loop for Flower."""
    loop = new_event_loop()
    # Once it serves. On Linux this is for the loop's thread alone: the one that hears of events goes before it.
    loop.call_soon(os.nice, NICENESS)
    return loop


if __name__ == "__main__":
    main()
