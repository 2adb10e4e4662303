from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import Page, Reader


class Desk:
    """Where one page is read at a time. Its reader keeps what it has started until another page is opened."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._reader: Reader | None = None

    def reader_of(self, page: Page) -> Reader:
        if self._reader is None or self._reader.page is not page:
            self.clear()
            self._reader = Reader(page, self._folders.mktemp("page"))
        return self._reader

    def clear(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.leaves()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """No parameter of its own: pytest would make it anew for each step, which would do all steps above it again."""
    desk = Desk(tmp_path_factory)
    try:
        yield desk
    finally:
        desk.clear()


@pytest.fixture
def reader(desk: Desk, page: Page) -> Reader:
    return desk.reader_of(page)
