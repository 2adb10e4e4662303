"""The health check of docker-compose.yml and of the chart, asked of real processes: what it finds, and its cost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.deploy.compose import Service, forget_signs, wait_until_announced, wait_until_healthy
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings

FAILS_WITHIN_S = 30 + 10
"""Older than half a minute, looked at every ten seconds."""


def named(service: Service, name: str, folder: Path) -> Service:
    """The same service under another name, with tools that keep it busy and a folder of its own."""
    there = {"TOOLFLEET_TOOLS": "tests.deploy.slow_tools", "TOOLFLEET_ALIVE_DIR": str(folder / name)}
    (folder / name).mkdir()
    command = [*service.command[: service.command.index("--name")], "--name", name]
    return replace(service, name=name, command=command, environment=service.environment | there)


def wait_until_there(file: Path, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + FAILS_WITHIN_S
    while not file.exists():
        assert process.poll() is None, f"it has ended with {process.returncode}: {process.stdout.read()}"
        assert time.monotonic() < give_up, f"nobody has written {file.name}"
        time.sleep(0.1)


async def first_failures(services: list[Service]) -> dict[str, float]:
    """How soon each was found unhealthy, of those that were in time for two of them."""
    began, found = time.monotonic(), dict[str, float]()
    while len(found) < 2 and time.monotonic() - began < 2 * FAILS_WITHIN_S:
        for service in services:
            if service.name not in found and not await asyncio.to_thread(service.is_healthy):
                found[service.name] = time.monotonic() - began
        await asyncio.sleep(1)
    return found


@pytest.mark.timeout(240)
async def test_D8_what_stands_still_is_found_and_a_blocking_tool_is_left_alone(
    services: dict[str, Service], tmp_path: Path
) -> None:
    frozen, blocked = (named(services["io"], name, tmp_path) for name in ("frozen", "blocked"))
    busy = named(services["cpu"], "busy", tmp_path)
    environment = busy.environment
    settings = Settings(redis_url=environment["TOOLFLEET_REDIS_URL"], secret=environment["TOOLFLEET_SECRET"])
    async with AsyncExitStack() as stack:
        stands_still = stack.enter_context(frozen.running())
        wait_until_healthy(frozen, stands_still)
        os.kill(stands_still.pid, signal.SIGSTOP)  # so that the other one takes the call
        for service in (blocked, busy):
            process = stack.enter_context(service.running())
            wait_until_announced(service.name, settings.redis_url, process)
            wait_until_healthy(service, process)
        orchestrator = await stack.enter_async_context(Orchestrator(settings=settings))
        for tool in ("stops_the_loop", "keeps_a_process_busy"):
            await orchestrator.call(tool, {"seconds": 2.0 * FAILS_WITHIN_S}, patience_s=0)

        found = await first_failures([frozen, blocked, busy])
        os.kill(stands_still.pid, signal.SIGCONT)

    assert set(found) == {"frozen", "blocked"}


def test_D8_to_ask_costs_no_start_of_python(services: dict[str, Service]) -> None:
    io = services["io"]
    with io.running() as process:
        wait_until_healthy(io, process)
        asked = ["sh", "-xc", *io.health[1:]]
        traced = subprocess.run(asked, env=io.environment, capture_output=True, text=True, check=False)
    assert traced.returncode == 0
    started = {line.lstrip("+ ").split()[0] for line in traced.stderr.splitlines() if line.startswith("+")}
    assert started == {"ls", "find", "test"}


@pytest.mark.parametrize("name", ["io", "orchestrator"])
def test_D8_a_server_that_is_away_is_no_reason_to_restart_what_waits_for_it(
    services: dict[str, Service], name: str
) -> None:
    service = services[name]
    with EmbeddedServer(port=0, temporary=True) as server:
        alone = replace(service, environment=service.environment | {"TOOLFLEET_REDIS_URL": server.url})
        with alone.running() as process:
            wait_until_healthy(alone, process)
            lease = Path(alone.environment["TOOLFLEET_ALIVE_DIR"], "lease")
            wait_until_there(lease, process)
            if name == "io":  # a worker that still begins ends where there is no server
                wait_until_announced(name, server.url, process)
            server.stop()
            for _ in range(2):  # the first may have been written before
                forget_signs(str(lease.parent))
                wait_until_there(lease, process)
