"""What is acknowledged was first on N replicas: Redis's WAIT, behind a write and on its connection.

Without it a server that is lost takes along what it had acknowledged and its replica had not got. Four writes wait,
those by which an effect could be had twice or an answer be lost: a call that was sent, that a worker has it, what came
of it, and each entry of a run. Off by default, and then nothing here is on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import redis.asyncio

from toolfleet.errors import TooFewReplicas
from toolfleet.settings import Settings

COUNTED_AS: Final = "waited_for_replicas"


class Replicas(NamedTuple):
    """How many replicas have to have a write, and how long they may take."""

    wanted: int
    within_s: float
    counters: str
    """The key of the counters."""

    @classmethod
    def of(cls, settings: Settings) -> Replicas:
        """Return what the settings want."""
        return cls(settings.wait_replicas, settings.wait_replicas_s, settings.keys.counters())

    def commands(self) -> list[tuple[str | int, ...]]:
        """Return what is sent behind a write, on its connection; the last reply is how many replicas have it.

        WAIT asks for the last write of its own connection. What stands before it is one, so it also covers what was
        written before by others, and what a script that is tried again finds done.
        """
        return [
            ("HINCRBY", self.counters, COUNTED_AS, 1),
            ("WAIT", self.wanted, round(self.within_s * 1000)),
        ]

    def check(self, reached: int) -> None:
        """Raise TooFewReplicas unless so many are enough."""
        if reached < self.wanted:
            raise TooFewReplicas(
                f"what was written is on {reached} of {self.wanted} replicas after {self.within_s:g} s; it is tried "
                "again. Start the replicas, or lower TOOLFLEET_WAIT_REPLICAS"
            )


class Script(Protocol):
    """A script of redis-py's."""

    async def __call__(self, keys: Sequence[Any] = ..., args: Sequence[Any] = ..., client: Any = ...) -> Any:
        """Run it."""
        ...


def script_on_replicas(client: redis.asyncio.Redis, text: str, replicas: Replicas | None) -> Script:
    """Register a script whose call returns when the replicas have what it wrote. Raises TooFewReplicas when called."""
    script: Any = client.register_script(text)
    return OnReplicas(client, script, replicas) if replicas and replicas.wanted else script


class OnReplicas:
    """A script, and the wait for replicas behind it."""

    def __init__(self, client: redis.asyncio.Redis, script: Script, replicas: Replicas) -> None:
        self._client = client
        self._script = script
        self._replicas = replicas

    async def __call__(self, keys: Sequence[Any] = (), args: Sequence[Any] = (), client: Any = None) -> Any:
        """Run it. Part of somebody's pipeline (`client`), it waits for nobody.

        Raises TooFewReplicas: then it was carried out, and may be lost with the server.
        """
        if client is not None:
            return await self._script(keys=keys, args=args, client=client)
        async with self._client.pipeline(transaction=False) as pipeline:
            await self._script(keys=keys, args=args, client=pipeline)
            reply, reached = await _with_wait(pipeline, self._replicas)
        self._replicas.check(reached)
        return reply


async def confirm(client: redis.asyncio.Redis, replicas: Replicas) -> None:
    """Return when the replicas have all that was written so far. Raises TooFewReplicas."""
    if replicas.wanted:
        async with client.pipeline(transaction=False) as pipeline:
            _, reached = await _with_wait(pipeline, replicas)
        replicas.check(reached)


async def _with_wait(pipeline: Any, replicas: Replicas) -> tuple[Any, int]:
    """Send what is in the pipeline and the wait on one connection. Returns the first reply, and how many have it."""
    for command in replicas.commands():
        pipeline.execute_command(*command)
    replies = await pipeline.execute()
    return replies[0], int(replies[-1])
