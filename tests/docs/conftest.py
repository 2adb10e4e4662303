from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import Reader


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The reader of one page, who keeps what it has started until the page's end."""
    reading = Reader(request.param, tmp_path_factory.mktemp("page"))
    try:
        yield reading
    finally:
        reading.leaves()
