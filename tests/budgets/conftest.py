from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.budgets.paid_provider import PRICES
from toolfleet.connections import connect_async
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.settings import Settings

Start = Callable[..., Awaitable[Process]]


@pytest.fixture
def settings(redis_server: EmbeddedServer, settings: Settings) -> Settings:
    """As everywhere, with a price for the provider's model and leases that end soon."""
    del redis_server
    return Settings(**{**settings.model_dump(), "prices": PRICES, "lease_s": 2.0, "heartbeat_s": 0.3})


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Redis]:
    async with connect_async(settings) as connected:
        yield connected


@pytest.fixture
def budgets(client: Redis, settings: Settings) -> TenantBudgets:
    return TenantBudgets(client, settings)


@pytest.fixture
async def start(settings: Settings) -> AsyncIterator[Start]:
    """Starts orchestrators in processes of their own; they end with the test."""
    started: list[Process] = []

    async def start_one(base_url: str, runs: int, where: str = "", **options: Any) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.budgets.runs_of_acme", base_url, str(runs), json.dumps(options), where),
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, **settings.as_environment(), "PYTHONPATH": str(Path.cwd())},
        )
        started.append(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return process

    yield start_one
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(process: Process) -> list[tuple[str, str | None]]:
    """Let its runs begin, and return how each has ended."""
    out, _ = await process.communicate(b"\n")
    return [(state, reason) for state, reason in map(json.loads, out.splitlines())]


async def until(true: Callable[[], Awaitable[bool]], within_s: float = 30) -> None:
    """Wait until something holds that only time brings: a lease that lapses."""
    async with asyncio.timeout(within_s):
        while not await true():
            await asyncio.sleep(0.05)
