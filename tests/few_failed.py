"""Whether what failed may be run once more alone: `.ci/run` asks for a file, and not for what pytest printed.

A plugin, in the process that reports.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.counting import CountedTests
from tests.orphans import NoOrphans

AT_MOST: Final = 9

WRITTEN: Final = "gate/few-failed"
"""The file's name in pytest's cache: `.pytest_cache/v/gate/few-failed` holds the tests."""


class FewFailed:
    """Writes the file where a few tests failed, and there is nothing else to complain of."""

    def __init__(self, counted: CountedTests, orphans: NoOrphans) -> None:
        self._counted = counted
        self._orphans = orphans
        self._failed: set[str] = set()
        self._uncollected = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._uncollected += report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around all others, which may still change the status
    def pytest_sessionfinish(self, session: pytest.Session) -> object:
        result = yield
        is_sound = not (self._uncollected or self._counted.passed_over or self._orphans.left)
        is_kept = session.config.pluginmanager.hasplugin("cacheprovider")
        is_few = session.exitstatus == pytest.ExitCode.TESTS_FAILED and 0 < len(self._failed) <= AT_MOST
        if is_few and is_sound and is_kept:
            session.config.cache.set(WRITTEN, sorted(self._failed))
        return result
