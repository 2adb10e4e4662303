"""No process outlives the tests that started it: one that does is named, ended, and fails the whole run.

Whatever is started inherits a mark in its environment. A plugin, in the process that reports.
"""

from __future__ import annotations

import os
import secrets
import time

import psutil
import pytest

VARIABLE = "PROCESSES_OF_TESTS"
ENDED_WITHIN_S = 15.0
"""Servers and companions of killed workers end by themselves, a moment after who needed them."""


def marked(mark: str, variable: str = VARIABLE) -> list[psutil.Process]:
    """The processes that began with this mark, but for those that have ended and wait for somebody to notice."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ().get(variable, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # gone meanwhile, or another user's
    return found


def left_after(mark: str, within_s: float = ENDED_WITHIN_S, variable: str = VARIABLE) -> list[psutil.Process]:
    """Those of them that have not ended after so long."""
    give_up = time.monotonic() + within_s
    while (left := marked(mark, variable)) and time.monotonic() < give_up:
        time.sleep(0.05)
    return left


class NoOrphans:
    """Marks what the tests start, and looks for it at their end."""

    def __init__(self, within_s: float = ENDED_WITHIN_S) -> None:
        self._within_s = within_s
        self._mark = secrets.token_hex(8)
        self.left: list[str] = []
        # Tests that run pytest themselves: what that starts is theirs, too.
        os.environ[VARIABLE] = f"{os.environ.get(VARIABLE, '')}/{self._mark}"

    @pytest.hookimpl(trylast=True)  # after xdist's workers have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for process in left_after(self._mark, self._within_s):
            try:
                self.left.append(f"{process.pid} (parent {process.ppid()}): {' '.join(process.cmdline())}")
                process.kill()
            except psutil.Error:
                continue
        if self.left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.left:
            terminalreporter.write_line(f"left behind by a test: {line}", red=True)
