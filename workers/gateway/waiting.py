"""Connections on which polls wait for calls: a hundred have one each, all others look once a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import redis.asyncio

from toolfleet.streams.waiting_connection import WaitingConnection

MOST: Final = 100
SILENT_S: Final = 6.0
"""Longer than anybody waits at a time."""


class WaitingRoom:
    """The connections of one process."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._idle: list[WaitingConnection] = []
        self._lent = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[WaitingConnection | None]:
        """Lend a connection; None when all are lent. One whose command was broken off is closed."""
        if self._lent >= MOST:
            yield None
            return
        self._lent += 1
        connection = self._idle.pop() if self._idle else WaitingConnection(self._client, silent_s=SILENT_S)
        is_clean = False
        try:
            yield connection
            is_clean = True
        finally:
            self._lent -= 1
            if is_clean:
                self._idle.append(connection)
            else:
                await connection.aclose()

    async def aclose(self) -> None:
        """Close those that nobody has."""
        while self._idle:
            await self._idle.pop().aclose()
