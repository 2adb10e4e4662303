"""Webhooks at a real receiver: owed with the end of a run, signed, sent until they are taken, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis.asyncio
from conversations import WrittenModel, requesting
from standardwebhooks import Webhook, WebhookVerificationError

from tests.webhooks.receiver import WAIT_S, Receiver, receiving
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import Orchestrator, Run
from toolfleet.orchestrator.errors import WebhookNotFound
from toolfleet.orchestrator.models import RehearsalServer
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.orchestrator.webhooks.records import WebhookEvent
from toolfleet.settings import Settings
from toolfleet.testing import Point, kill_at

LONE = Path(__file__).parents[1] / "fleet" / "lone_orchestrator.py"


@asynccontextmanager
async def answering(settings: Settings, *replies: tuple[object, str]) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(WrittenModel(*replies), settings=settings) as orchestrator:
        yield orchestrator


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


async def ended(settings: Settings, **options) -> Run:
    async with answering(settings) as orchestrator:
        return await orchestrator.run("?", **options)


# --- U11 ------------------------------------------------------------------------------------------------------------


async def test_U11_a_receiver_that_is_down_gets_each_message_signed_and_under_one_id_once_it_is_back(
    settings, endpoints, outbox, client
):
    async with receiving() as receiver:
        endpoint, secret = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        run = await orchestrator.run("?")
        # Down: nobody listens.
        await until(lambda: tries_of(outbox, endpoint.endpoint_id, 3))
        receiver.status = 503
        async with receiving(receiver):
            first, second = (await receiver.wait_for(2))[:2]
            receiver.status = 204
            await until(lambda: nothing_owed(client, settings))
    tried = [*reversed(await outbox.attempts(endpoint.endpoint_id, 100))]
    assert [each.number for each in tried] == list(range(1, len(tried) + 1))
    assert [each.status for each in tried[:3]] == [None] * 3
    assert [each.is_delivered for each in tried] == [False] * (len(tried) - 1) + [True]
    assert first.id == second.id == receiver.got[-1].id
    said = receiver.got[-1].verified(secret)
    assert said["type"] == "run.completed"
    assert said["data"] == {"run_id": run.run_id, "state": "done"}


async def test_U11_no_message_is_lost_where_an_orchestrator_is_killed_between_the_end_of_its_run_and_sending(
    settings, endpoints, receiver, client
):
    _, secret = await endpoints.add(receiver.url)
    async with RehearsalServer() as model, lone(settings, model, kill_at(Point.REPLY_STORED)) as process:
        process.stdin.write(json.dumps({"question": "say hello", "run_id": "killed"}).encode() + b"\n")
        assert await asyncio.wait_for(process.wait(), WAIT_S) == -signal.SIGKILL
    assert receiver.got == []
    assert await client.zcard(settings.keys.webhooks_due()) == 1
    async with Orchestrator(settings=settings):
        [request] = await receiver.wait_for(1)
        assert request.verified(secret)["data"] == {"run_id": "killed", "state": "done"}
        await until(lambda: nothing_owed(client, settings))


async def tries_of(outbox: Outbox, endpoint_id: str, count: int) -> bool:
    return len(await outbox.attempts(endpoint_id, 100)) >= count


async def nothing_owed(client: redis.asyncio.Redis, settings: Settings) -> bool:
    return not await client.zcard(settings.keys.webhooks_due())


@asynccontextmanager
async def lone(settings: Settings, model: RehearsalServer, fate: dict[str, str]):
    """An orchestrator in a process of its own that dies at a point."""
    program = f"import toolfleet.testing.instruments, runpy; runpy.run_path({str(LONE)!r}, run_name='__main__')"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, model.base_url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **settings.as_environment(), **fate},
    )
    try:
        async with asyncio.timeout(WAIT_S):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()
