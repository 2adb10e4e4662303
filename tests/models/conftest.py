"""What the tests of models share: a tool to offer, options that do not wait long, and every event of a reply."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.models.canned_server import canned_server
from toolfleet.orchestrator.models import HttpOptions


@dataclass(frozen=True)
class Tool:
    name: str
    description: str = "does what its name says"
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


@pytest.fixture
def tool():
    return Tool


@pytest.fixture
def quick():
    """Retries without long waits."""
    return HttpOptions(first_wait_s=0.01, max_wait_s=2.0, connect_s=2.0, silence_s=5.0, timeout_s=10.0)


@pytest.fixture
async def server():
    """Whoever serves the models of a test; its answers are queued."""
    async with canned_server() as running:
        yield running


@pytest.fixture
def events_of():
    async def events_of(model, messages, tools=(), **options):
        async with aclosing(model.stream(messages, tools, **options)) as events:
            return [event async for event in events]

    return events_of


@pytest.fixture(autouse=True)
def no_keys_of_the_developer(monkeypatch):
    for provider in ("OPENAI", "ANTHROPIC"):
        for variable in ("API_KEY", "BASE_URL", "MODEL"):
            monkeypatch.delenv(f"{provider}_{variable}", raising=False)
