"""A client of the session's server, for whoever stores something there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from toolfleet.connections import connect_async
from toolfleet.settings import Settings


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    """In the test's own namespace."""
    async with connect_async(settings) as client:
        yield client
