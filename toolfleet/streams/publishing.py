"""Batches of published messages: packed once, sent in one piece, answered in one piece.

kombu decides when a batch is sent, discarded or unusable; this replaces the redis-py pipeline under it, which spends
more time on each command than the command takes to pack.
"""

from __future__ import annotations

from typing import Any

import hiredis
import redis
from kombu.transport.redis import PublishBatch


class PackedPipeline:
    """Commands in the order given, executed once and never repeated. Not a transaction."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any) -> None:
        """Add any command."""
        self._commands.append(command)

    def publish(self, channel: str, message: str) -> None:
        """Add a PUBLISH."""
        self._commands.append(("PUBLISH", channel, message))

    def execute(self) -> list[Any]:
        """Send all, and read every reply. Raises the first refusal; connection errors leave the outcome open."""
        commands, self._commands = self._commands, []
        connection = self._pool.get_connection()
        try:
            connection.send_packed_command([b"".join(map(hiredis.pack_command, commands))])
            replies = [_reply(connection) for _ in commands]
        except BaseException:
            # Unread replies would answer the next user of this connection.
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise reply
        return replies

    def reset(self) -> None:
        """Drop what was not executed."""
        self._commands.clear()


class StreamPublishBatch(PublishBatch):  # type: ignore[misc]  # kombu ships no types
    """kombu's batch on a packed pipeline."""

    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, max_size)
        self.pipeline = PackedPipeline(channel.commands)


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as refusal:
        return refusal
