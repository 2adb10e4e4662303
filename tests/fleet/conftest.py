from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from fleets import asking, fleet_of
from redis.asyncio import Redis
from stages import Stage, stage_of_its_own

from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    with fleet_of(pools={"io": 1, "cpu": 1, "long": 1}) as running:
        yield running


@pytest.fixture
async def client(fleet: LocalFleet) -> AsyncIterator[Redis]:
    async with connect_async(fleet.settings) as connected:
        yield connected


@pytest.fixture
def store(client: Redis, fleet: LocalFleet) -> RunStore:
    return RunStore(client, fleet.settings, Seal(fleet.settings))


@pytest.fixture
async def orchestrator(fleet: LocalFleet) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_of_its_own() as its_own:
        yield its_own


@pytest.fixture
def ask(orchestrator: Orchestrator) -> Callable[..., Any]:
    """Perform calls; their contents, in order."""

    async def performed(*calls: tuple[str, Any], **options: Any) -> list[str]:
        return [message.content for message in await orchestrator.execute(asking(*calls), **options)]

    return performed


@pytest.fixture
async def orchestrators_of() -> AsyncIterator[Callable[[LocalFleet], Awaitable[Orchestrator]]]:
    """Orchestrators of fleets of a test's own; they are left at its end."""
    async with AsyncExitStack() as left_at_the_end:

        async def orchestrator_of(fleet: LocalFleet) -> Orchestrator:
            return await left_at_the_end.enter_async_context(Orchestrator(settings=fleet.settings))

        yield orchestrator_of
