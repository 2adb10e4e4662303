"""Several real servers as shards, each with a worker of its own, and a model that does what the question says."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator import FunctionModel, ShardedOrchestrator
from toolfleet.settings import Settings, new_secret
from toolfleet.testing import FaultyServer

WITHIN_S = 60.0


class Shards:
    """Servers by name; `settings()` are those of a fleet of all that were added."""

    def __init__(self) -> None:
        self._exit = ExitStack()
        self._said = {"namespace": f"test-{secrets.token_hex(4)}", "secret": new_secret()}
        self.servers: dict[str, FaultyServer] = {}
        self.fleets: dict[str, LocalFleet] = {}
        self.weights: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def add(self, *names: str, workers: bool = True) -> None:
        for name in names:
            self.servers[name] = self._exit.enter_context(FaultyServer(fsync="everysec"))
        for name in names if workers else ():
            self.staff(name)

    def staff(self, name: str) -> None:
        self.fleets[name] = self._exit.enter_context(self.fleet(name))

    @property
    def tools(self) -> Path:
        """The folder of their module."""
        return Path(__file__).parent

    def fleet(self, name: str) -> LocalFleet:
        settings = self.settings(name)
        return LocalFleet(
            ["shard_tools"],
            pools={"io": 1},
            redis_url=settings.redis_url,
            shards=settings.shards,
            shard=name,
            lease_s=4.0,
            heartbeat_s=0.5,
            environment={"PYTHONPATH": str(Path(__file__).parent)},
            **self._said,
        )

    def settings(self, shard: str = "", *, only: Sequence[str] | None = None, **more: Any) -> Settings:
        named = {name: self.servers[name].url for name in only or self.servers}
        weighed = {name: f"{name}*{self.weights[name]}" if name in self.weights else name for name in named}
        text = " ".join(f"{weighed[name]}={url}" for name, url in named.items())
        return Settings(shards=text, shard=shard, lease_s=4.0, heartbeat_s=0.5, **self._said, **more)

    @asynccontextmanager
    async def orchestrator(self, **settings: Any) -> AsyncIterator[ShardedOrchestrator]:
        async with ShardedOrchestrator(obedient(), settings=self.settings(**settings)) as running:
            yield running


def obedient() -> FunctionModel:
    """Asks for the calls that the question has as JSON, `[[tool, arguments], …]`; then says their results."""

    def reply(messages: Sequence[Message]) -> AssistantMessage:
        answers = [message.content for message in messages if isinstance(message, ToolMessage)]
        if answers:
            return AssistantMessage(content=" | ".join(answers))
        [question] = [message.content for message in messages if isinstance(message, UserMessage)]
        calls = json.loads(str(question))
        return AssistantMessage(
            tool_calls=tuple(
                RequestedCall(id=f"c{n}", name=name, arguments=json.dumps(arguments))
                for n, (name, arguments) in enumerate(calls)
            )
        )

    return FunctionModel(reply, name="obedient")


def asking(*calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(calls)


def shard_of(id_: str) -> str:
    return id_.partition("~")[0]


async def until(is_so: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)
