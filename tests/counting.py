"""As many tests are run as were collected: one that is passed over in silence fails the whole run.

Tests of equal id are: `pytest-xdist` sends one of them. A plugin, in the process that reports.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest


class CountedTests:
    """Counts what was collected, here or by the first of xdist's workers, and what was run."""

    def __init__(self) -> None:
        self._collected = 0
        self._run = 0

    @property
    def passed_over(self) -> int:
        """How many were collected and not run."""
        return self._collected - self._run

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        self._collected = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self._run += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.passed_over and not session.config.option.collectonly:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed_over and not terminalreporter.config.option.collectonly:
            terminalreporter.write_line(f"{self._collected} tests were collected, {self._run} were run", red=True)
