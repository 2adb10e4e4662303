from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shards.stages import Shards


@pytest.fixture
def shards() -> Iterator[Shards]:
    with Shards() as its_own:
        yield its_own
