"""Imported by a process that is to suffer: reads its fate from the environment and arranges it. Importing it acts.

A worker imports it by `--instrument toolfleet.testing.instruments`, which `toolfleet.testing.MortalFleet` adds.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

from toolfleet.points import Hook, Point, install
from toolfleet.testing.fates import CLOCK_VARIABLE, KILL_VARIABLE, STOP_VARIABLE, Fate


def fatal_hook(fates: dict[Fate, signal.Signals]) -> Hook:
    """Return a hook that sends this process the signal of each fate whose time has come; each comes once."""
    arrivals: Counter[Fate] = Counter()

    def hook(point: Point, subject_id: str) -> None:
        for fate, ending in fates.items():
            if fate.concerns(point, subject_id):
                arrivals[fate] += 1
                if arrivals[fate] == fate.nth:
                    os.kill(os.getpid(), ending)

    return hook


def shift_clock(offset_s: float) -> None:
    """Let `time.time` of this process be wrong from now on. Monotonic clocks, and the kernel's, stay right."""
    true_time = time.time
    time.time = lambda: true_time() + offset_s


def _act() -> None:
    signals = {KILL_VARIABLE: signal.SIGKILL, STOP_VARIABLE: signal.SIGSTOP}
    fates = {
        Fate.parse(text): ending
        for variable, ending in signals.items()
        for text in os.environ.get(variable, "").split(",")
        if text
    }
    if fates:
        install(fatal_hook(fates))
    if offset := os.environ.get(CLOCK_VARIABLE):
        shift_clock(float(offset))


_act()
