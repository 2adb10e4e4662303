"""What the test files of one directory share, a fleet for example: made when the first asks, ended with the last.

A fixture of the session would stay for the whole run: workers that nobody asks for anything cost as much, by its end,
as several starts of them. A plugin, in each process that runs tests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

NAME = "shared-by-directory"

T = TypeVar("T")


def shared(request: pytest.FixtureRequest, make: Callable[[], AbstractContextManager[T]]) -> T:
    """What `make` has entered for this test's directory. For a module's fixtures: the next module is given the same."""
    plugin = request.config.pluginmanager.get_plugin(NAME)
    assert isinstance(plugin, SharedByDirectory)
    entered: T = plugin.entered(request.path.parent, make)
    return entered


class SharedByDirectory:
    """Holds what one directory shares, and ends it before a test of another one is set up."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._entered: dict[object, Any] = {}
        self._directory: Path | None = None

    def entered(self, directory: Path, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        assert self._directory in {None, directory}
        self._directory = directory
        if make not in self._entered:
            self._entered[make] = self._stack.enter_context(make())
        return self._entered[make]

    def _end(self) -> None:
        self._entered, self._directory = {}, None
        self._stack.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        """After the fixtures that were made of it; what goes wrong is the fault of the last test."""
        try:
            yield
        finally:
            if nextitem is None or nextitem.path.parent != self._directory:
                self._end()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Where the run was cut short."""
        self._end()
