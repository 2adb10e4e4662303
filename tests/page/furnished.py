"""A fleet of which each page has something to show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.http.fleet_of_doors import WAIT_S, Api
from toolfleet.orchestrator.store.batches import BatchRecord, BatchState
from toolfleet.orchestrator.webhooks.records import Endpoint

Found = TypeVar("Found")

ASKED = (
    'call fetch_page {"url": "https://example.org"} call break_down {"text": "no such file"} '
    'then call give_back {"value": [1]}'
)


@asynccontextmanager
async def furnished(api: Api) -> AsyncIterator[list[str]]:
    """The paths of all pages, each with something on it. What they show as under way is ended afterwards."""
    await _subscribed(api)
    done = await api.begin(ASKED, webhook="we_shown")
    waiting = await api.begin('call pay {"amount": 120}')
    asking = await api.begin('call transfer {"amount": 5} then fetch')
    slow = await api.begin('call index_folder {"steps": 10000} then fetch')
    schedules = api.door.orchestrator.schedules
    schedule = await schedules.add("0 8 * * 1-5", "What is new?", tz="Europe/Berlin", tools=[])
    ticked = await schedules.run(schedule.schedule_id)
    batch = await _batch(api)
    try:
        await api.ended(done)
        await api.ended(ticked)
        await until(lambda: _of_first_call(api, waiting, "awaits_approval"))
        await until(lambda: api.door.looking.questions.of_run(asking, tenant=""))
        handle = await until(lambda: _of_first_call(api, slow, "handle"))
        await _given_up(api)
        yield [
            "/",
            "/runs",
            "/runs?state=done",
            f"/runs/{done}",
            f"/runs/{waiting}",
            f"/runs/{asking}",
            f"/calls/{done}.1.0",
            f"/calls/{done}.1.1",
            f"/calls/{waiting}.1.0",
            f"/calls/{asking}.1.0",
            "/approvals",
            "/jobs",
            f"/jobs/{handle}",
            "/schedules",
            "/batches",
            f"/batches/{batch.batch_id}",
            "/dead-letters",
            "/webhooks",
            f"/runs/{done}/tree",
            f"/runs/{done}/conversation?first=1",
            "/tools",
            "/tools/give_back",
            "/tools/pay",
            "/find?q=nothing",
            "/sign-in",
        ]
    finally:
        for run_id in (waiting, asking, slow):
            await api.client.post(f"/v1/runs/{run_id}/cancel")
            await api.ended(run_id)
        await schedules.remove(schedule.schedule_id)
        await api.door.looking.batches.save(batch.model_copy(update={"state": BatchState.DONE}))


async def until(look: Callable[[], Awaitable[Found]]) -> Found:
    """Look until there is something to see."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def _of_first_call(api: Api, run_id: str, name: str) -> Any:
    calls = (await api.client.get(f"/v1/runs/{run_id}")).json()["calls"]
    return calls[0].get(name) if calls else None


async def _batch(api: Api) -> BatchRecord:
    """Keep a batch that goes on, with one run."""
    now = time.time()
    record = BatchRecord(
        batch_id="furnish-abcdef",
        orchestrator_id=api.door.orchestrator.orchestrator_id,
        source="questions.jsonl",
        by="ada@desk",
        lines=40,
        ok=1,
        failed=1,
        in_hand=5,
        began_unix_s=now,
        started_unix_s=now,
        updated_unix_s=now,
    )
    await api.door.orchestrator.run("What is a batch?", run_id=f"{record.batch_id}-{'a' * 20}")
    await api.door.looking.batches.save(record)
    return record


async def _subscribed(api: Api) -> None:
    endpoint = Endpoint(endpoint_id="we_shown", url="https://10.0.0.1/hooks", created_unix_s=0.0)
    await api.door.looking.webhooks.endpoints.put(endpoint)


async def _given_up(api: Api) -> None:
    """Have a notice given up: it is due again at once, and nobody wants it any more."""
    webhooks = api.door.looking.webhooks
    await until(lambda: webhooks.outbox.attempts("we_shown"))
    await webhooks.endpoints.disable("we_shown", "it answered 410 (gone)")
    due, client = api.door.settings.keys.webhooks_due(), api.door.client

    async def look() -> Any:
        for name in await client.zrange(due, 0, -1):
            await client.zadd(due, {name: 1}, xx=True)
        return await webhooks.outbox.dead("")

    await until(look)
