"""A connection to Redis on which commands may wait for a while, and whose wait another connection can end.

Beside the connection that many tasks share (`multiplexing.py`), which nothing may hold up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
import redis.asyncio

from toolfleet.multiplexing import ReplyStream, connected, packed
from toolfleet.redis_clients import COMMAND_FAILED


class WaitingConnection:
    """For one task at a time: a connection that is made when it is needed, and anew when it was lost."""

    def __init__(self, client: redis.asyncio.Redis, *, silent_s: float) -> None:
        """`client` says where the server is. It is given up when it is silent for `silent_s`."""
        self._client = client
        self._silent_s = silent_s
        self._replies: ReplyStream | None = None
        self._id = 0
        self._is_waiting = False
        self.times_connected = 0
        """Whether two requests went to one connection, this number tells."""

    async def request(self, *commands: Sequence[Any]) -> list[Any]:
        """Send commands together, and return the reply to each, which may be an error.

        Raises redis.ConnectionError, redis.TimeoutError or OSError.
        """
        replies = self._replies
        if replies is None or not replies.is_open:
            replies = await self._connected()
        self._is_waiting = True
        try:
            return await replies.request(b"".join(map(packed, commands)), len(commands))
        finally:
            self._is_waiting = False

    async def end_wait(self) -> None:
        """Have the server answer the command that waits, if one does."""
        if self._is_waiting:
            with suppress(*COMMAND_FAILED):
                await self._client.execute_command("CLIENT UNBLOCK", self._id)

    async def aclose(self) -> None:
        """Let go of the connection; the next command makes another."""
        replies, self._replies = self._replies, None
        if replies is not None:
            await replies.aclose()

    async def _connected(self) -> ReplyStream:
        connection = self._client.connection_pool.make_connection()
        self._replies = replies = await connected(connection, silent_s=self._silent_s)
        self.times_connected += 1
        [self._id] = await replies.request(packed(("CLIENT", "ID")), 1)
        return replies
