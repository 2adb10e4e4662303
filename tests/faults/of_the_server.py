"""A server that ends, hangs, is full, or cannot be reached; and what it delivers twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis

from tests.faults.arena import LEASE_S, Arena, Form, counted, fault
from tests.faults.load import IN_PROCESSES, MIXED, Load
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.testing import Proxy

OUTAGE_S = {Form.ONCE: 1.0, Form.SHORT: 4.0, Form.LONG: 10.0}
"""How long an outage is to last: from shorter than the lease to four times as long."""

ALL = (*MIXED, *IN_PROCESSES)


async def restarted(arena: Arena, how: signal.Signals, times: int) -> None:
    async with arena.load.running(conversations=6, tools=ALL):
        for _ in range(times):
            await asyncio.sleep(0.3 + 0.3 * arena.rng.random())
            async with arena.injecting():
                await asyncio.to_thread(arena.server.restart, how, down_s=0.5 * arena.rng.random())
            await arena.recovered()


@fault("the server is killed and started again with its append-only file, calls queued and running", long=20)
async def server_killed(arena: Arena, times: int) -> None:
    await restarted(arena, signal.SIGKILL, times)


@fault("the server is stopped and started again, calls queued and running", long=20)
async def server_stopped(arena: Arena, times: int) -> None:
    await restarted(arena, signal.SIGTERM, times)


@fault("the server hangs (SIGSTOP)", short=1, long=5)
async def server_frozen(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, tools=ALL):
        for _ in range(times):
            await asyncio.sleep(0.5)
            async with arena.injecting():
                with arena.server.frozen():
                    await asyncio.sleep(OUTAGE_S[arena.form])
            await arena.recovered()


@fault("the server answers nobody for a while (CLIENT PAUSE)", short=1, long=5)
async def server_paused(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, tools=ALL):
        for _ in range(times):
            await asyncio.sleep(0.5)
            async with arena.injecting():
                await asyncio.to_thread(arena.server.pause_clients, OUTAGE_S[arena.form])
                await asyncio.sleep(OUTAGE_S[arena.form])
            await arena.recovered()


@fault("the server is out of memory (maxmemory, noeviction), then relieved", short=2, long=10)
async def out_of_memory(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, tools=ALL):
        for _ in range(times):
            await asyncio.sleep(0.5)
            async with arena.injecting():
                with arena.server.out_of_memory():
                    await asyncio.sleep(min(4.0, OUTAGE_S[arena.form]))
            await arena.recovered()


@fault("the disk of the append-only file is full, then relieved", short=2, long=10, stand="small disk")
async def disk_full(arena: Arena, times: int) -> None:
    async with arena.load.running(conversations=6, tools=ALL):
        for _ in range(times):
            await asyncio.sleep(0.5)
            async with arena.injecting():
                with arena.server.full_disk():
                    await asyncio.sleep(max(2.0, min(4.0, OUTAGE_S[arena.form])))
            await arena.recovered()


@asynccontextmanager
async def behind_a_proxy(arena: Arena) -> AsyncIterator[tuple[Proxy, Load]]:
    """A worker and an orchestrator that reach the server through a proxy."""
    with Proxy(arena.server.port_url) as proxy:
        through = {"redis_url": proxy.url}
        worker = arena.fleet.start_fated("io", {"TOOLFLEET_REDIS_URL": proxy.url})
        await arena.ready()
        async with Orchestrator(settings=arena.settings.model_copy(update=through)) as orchestrator:
            load = Load(orchestrator, arena.rng)
            load.asks = arena.load.asks
            yield proxy, load
        await asyncio.to_thread(arena.fleet.kill, worker)


@fault("every connection of a worker and an orchestrator is reset under load", once=5, short=30, long=200)
async def connections_cut(arena: Arena, times: int) -> None:
    async with behind_a_proxy(arena) as (proxy, load), load.running(conversations=6):
        for _ in range(times):
            await asyncio.sleep(0.1 + 0.3 * arena.rng.random())
            if await asyncio.to_thread(proxy.cut):  # else all of them are just being made anew
                arena.injected()


@fault("the network to a worker and an orchestrator is gone for a while, bytes held up", short=1, long=5)
async def network_gone(arena: Arena, times: int) -> None:
    async with behind_a_proxy(arena) as (proxy, load), load.running(conversations=6):
        for _ in range(times):
            await asyncio.sleep(0.5)
            async with arena.injecting():
                proxy.hold()
                await asyncio.sleep(OUTAGE_S[arena.form] + LEASE_S)
                proxy.release()
            await arena.recovered()


@fault("every message is put into the queue twice more, while it runs and long after", once=1, short=3, long=20)
async def message_delivered_twice(arena: Arena, times: int) -> None:
    before = await counted(arena.settings, "duplicate_messages")
    for _ in range(times):
        async with copying_queues(arena) as copies:
            for _ in range(5):
                await asyncio.gather(*(arena.load.perform(arena.load.mixture(20, 0.1, ["once"])) for _ in range(3)))
        arena.expect(copies, "no message was copied")
        async with connect_async(arena.settings) as client:
            for stream, fields in copies:
                await client.xadd(stream, fields)
                arena.injected()
    refused = await counted(arena.settings, "duplicate_messages") - before
    arena.expect(refused, "no copy was refused")


@asynccontextmanager
async def copying_queues(arena: Arena) -> AsyncIterator[list[tuple[str, dict[bytes, bytes]]]]:
    """Put each message that is seen in the queue there again, at once; what is yielded is what was seen."""
    stream = arena.settings.keys.queue("io", 3)
    copies: list[tuple[str, dict[bytes, bytes]]] = []
    seen: set[bytes] = set()
    async with connect_async(arena.settings) as client:

        async def copy() -> None:
            while True:
                for _, fields in await client.xrange(stream):
                    if fields[b"b"] not in seen:
                        seen.add(fields[b"b"])
                        copies.append((stream, fields))
                        await client.xadd(stream, fields)
                        arena.injected()
                await asyncio.sleep(0.002)

        copying = asyncio.create_task(copy())
        try:
            yield copies
        finally:
            copying.cancel()
            await asyncio.wait([copying])


@fault("every result is announced twice more: as it is, under another call's id, and unsigned", short=3, long=20)
async def result_delivered_twice(arena: Arena, times: int) -> None:
    async with connect_async(arena.settings) as client:
        for _ in range(times):
            meddling = asyncio.create_task(meddle(arena, client))
            for _ in range(5):
                await asyncio.gather(*(arena.load.perform(arena.load.mixture(20, 0.1)) for _ in range(3)))
            meddling.cancel()
            await asyncio.wait([meddling])
    arena.expect(arena.injections, "no result was copied")


async def meddle(arena: Arena, client: redis.asyncio.Redis) -> None:
    """Announce what is announced again, falsely."""
    key = arena.settings.keys.replies(arena.load.orchestrator.orchestrator_id)
    seen: set[bytes] = set()
    last_id: bytes | str = "$"
    while True:
        for _, entries in rows(await client.xread({key: last_id}, block=1000)):
            for entry_id, fields in entries:
                last_id = entry_id
                if b"r" not in fields or fields[b"c"] in seen:
                    continue
                seen.add(fields[b"c"])
                await client.xadd(key, fields)
                for call in waiting(arena):
                    await client.xadd(key, {b"c": call, b"r": fields[b"r"]})
                    await client.xadd(key, {b"c": call, b"r": b"0" * 64 + fields[b"r"][64:]})
                arena.injected()


def rows(reply: Any) -> list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """XREAD's reply in either version of the protocol."""
    if isinstance(reply, dict):
        return [(key, entries[0] if len(entries) == 1 else entries) for key, entries in reply.items()]
    return reply or []


def waiting(arena: Arena) -> list[bytes]:
    """Some calls that have no answer yet."""
    return [ask.call_id.encode() for ask in arena.load.asks[-60:] if ask.call_id and not ask.outcome][:3]
