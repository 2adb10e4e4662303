from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fleets import asking
from stages import Stage, stage_of_its_own

from tests.workers_go import processes as in_go
from tests.workers_ts import processes as in_typescript
from toolfleet.orchestrator import Orchestrator

LANGUAGES = {"typescript": in_typescript, "go": in_go}
"""What starts workers of each: `start` one more, `fleet_of` so many."""


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> Any:
    return LANGUAGES[request.param]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with stage_of_its_own() as its_own:
        yield its_own


@pytest.fixture
async def orchestrator(fleet: Any) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(settings=fleet.settings) as running:
        yield running


@pytest.fixture
def begin(orchestrator: Orchestrator) -> Callable[..., asyncio.Task[list[str]]]:
    """Start calls; a task whose result is their contents."""

    async def contents(calls: Any, options: Any) -> list[str]:
        return [message.content for message in await orchestrator.execute(asking(*calls), **options)]

    return lambda *calls, **options: asyncio.create_task(contents(calls, options))
