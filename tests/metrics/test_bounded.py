"""What a scrape asks of Redis: one command for each worker, a few for each queue, in a few round trips."""

from __future__ import annotations

import time

from redis.asyncio import Redis

from benchmarks.commands import Counted
from tests.http.fleet_of_doors import Api, api_of
from tests.metrics.scraping import parsed
from toolfleet.catalog import Announcement
from toolfleet.connections import connect_async
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.settings import Settings, new_secret
from toolfleet.wire import Seal

QUEUES = 100
WORKERS = 1000
FOR_EACH_QUEUE = 8
"""Three streams, each looked at by a script; what is held back, scheduled, and the lanes."""
ROUND_TRIPS = 40
"""Eight are seen; the server may read a large request in several parts."""
BESIDE = 100
"""What a scrape reads once, and small things that the fleet does at its own pace."""
TIMES = 3


async def announced(client: Redis, settings: Settings, begin: int, end: int) -> None:
    """Workers as they announce themselves, each of one of the queues."""
    seal, now_ms = Seal(settings), int(time.time() * 1000)
    async with client.pipeline() as pipeline:
        for number in range(begin, end):
            worker = f"w{number}@here"
            said = Announcement(
                worker=worker,
                pid=1,
                pool="asyncio",
                concurrency=10,
                queues=(f"q{number % QUEUES}",),
                started_unix_s=0.0,
                tools=(),
                proofs=seal.proofs(worker),
            )
            sealed = seal.close_announcement(said.model_dump_json().encode(), worker, now_ms)
            pipeline.set(settings.keys.worker(worker), sealed, ex=60)
            pipeline.zadd(settings.keys.workers(), {worker: now_ms / 1000})
        await pipeline.execute()


async def asked_for(client: Redis, api: Api, path: str) -> tuple[str, Counted]:
    before = await Counted.by(client)
    answer = await api.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text, (await Counted.by(client)).since(before)


async def least_asked_for(client: Redis, api: Api, path: str) -> tuple[str, Counted]:
    """Return the least of a few times: the server also counts what looks at the fleet at its own pace."""
    times = [await asked_for(client, api, path) for _ in range(TIMES)]
    return min(times, key=lambda each: sum(each[1].commands.values()))


async def test_figures_of_a_hundred_queues_and_a_thousand_workers_take_few_round_trips_and_search_nothing() -> None:
    with EmbeddedServer(temporary=True) as server:
        settings = Settings(redis_url=server.url, secret=new_secret())
        async with connect_async(settings) as client, api_of(settings) as api:
            await announced(client, settings, 0, WORKERS)
            await asked_for(client, api, "/metrics")  # connections made, scripts loaded
            told, of_figures = await least_asked_for(client, api, "/metrics")
            assert parsed(told).sum("toolfleet_queue_workers") == WORKERS
            _, of_queues = await least_asked_for(client, api, "/v1/queues")
            for cost in (of_figures, of_queues):
                assert sum(cost.commands.values()) <= FOR_EACH_QUEUE * QUEUES + WORKERS + BESIDE, cost
                assert cost.reads <= ROUND_TRIPS, cost
                assert {"keys", "scan"}.isdisjoint(cost.commands)
