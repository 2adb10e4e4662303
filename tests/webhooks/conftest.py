"""Settings with which webhooks go to this machine, and are sent again soon; and a receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from tests.webhooks.receiver import Receiver, receiving
from toolfleet.connections import connect_async
from toolfleet.orchestrator.webhooks import asked, delivering
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.settings import Settings
from toolfleet.wire import Seal


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second is often enough for people."""
    monkeypatch.setattr(delivering, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(asked, "LOOK_EVERY_S", 0.1)


SOON = "0.05 0.05 0.1 0.1 0.2 0.2 0.4 0.4 1 1 2 2"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_networks": "127.0.0.1/32", "webhook_retry_s": SOON})


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[redis.asyncio.Redis]:
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def endpoints(client: redis.asyncio.Redis, settings: Settings) -> Endpoints:
    return Endpoints(client, settings, Seal(settings))


@pytest.fixture
def outbox(client: redis.asyncio.Redis, settings: Settings) -> Outbox:
    return Outbox(client, settings, Seal(settings))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver
