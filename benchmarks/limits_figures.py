"""What limits and the waiting room cost: limits that nobody reaches, and the server's part of each call that waits.

Always in pairs that follow one another, so that a machine that slows down slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from redis import Redis

from benchmarks.contenders.toolfleet_orchestrator import MessageBatch, Toolfleet
from benchmarks.fairness import bytes_per_waiting_call, dispatch_us, moves_per_s
from benchmarks.figures import Measure, Stage, Values, check
from benchmarks.sizes import Figure, Scale
from toolfleet.local.embedded_server import EmbeddedServer

LIMITED = "noop_limited"
PAIRS = 5


async def limits(stage: Stage) -> Values:
    """A tool that declares limits which nobody reaches, over one that declares none."""
    n = stage.scale.affordable(stage.scale.burst_calls, stage.rate)
    for tool in (Toolfleet.noop, LIMITED):
        await calls(stage, tool, n // 10)
    rates = await paired(lambda tool: rate_of(stage, tool, n), PAIRS)
    lone = await paired(lambda tool: lone_ms(stage, tool), stage.scale.latency_calls)
    bare_ms, limited_ms = (statistics.median(each) for each in zip(*lone, strict=True))
    return Values(
        {
            "limits_burst_over_none": statistics.median(limited / bare for bare, limited in rates),
            "limits_p50_over_none": limited_ms / bare_ms,
        },
        {"limits": n * PAIRS, "limits_lone": len(lone)},
    )


async def paired(measured: Callable[[str], Awaitable[float]], times: int) -> list[tuple[float, float]]:
    """What is measured without limits and with them, in turns, each of the two first every other time."""
    pairs = []
    for number in range(times):
        first, second = (Toolfleet.noop, LIMITED)[:: -1 if number % 2 else 1]
        found = {first: await measured(first), second: await measured(second)}
        pairs.append((found[Toolfleet.noop], found[LIMITED]))
    return pairs


async def rate_of(stage: Stage, tool: str, n: int) -> float:
    """Calls per second of so many at once."""
    begin = time.perf_counter()
    await calls(stage, tool, n)
    return n / (time.perf_counter() - begin)


async def lone_ms(stage: Stage, tool: str) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    await calls(stage, tool, 1)
    return 1e3 * (time.perf_counter() - begin)


async def calls(stage: Stage, tool: str, n: int) -> None:
    """So many calls of a tool, all of them right."""
    orchestrator = cast("Toolfleet", stage.contender).orchestrator
    check(await MessageBatch(orchestrator, tool, n, dispatched=0).results(), n)


async def room(stage: Stage) -> Values:
    """What the server does for a call that waits: alone, and with ten thousand tenants beside it."""
    return await asyncio.to_thread(measured_room, stage.scale)


def measured_room(scale: Scale) -> Values:
    """The same, on a server of its own, whose one thread does nothing else."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, EmbeddedServer(Path(folder)) as server:
        client = Redis.from_url(server.url, protocol=2)
        try:
            tenants, waiting = scale.room_tenants, scale.room_calls
            moves = [moves_per_s(client, number, waiting) for number in (0, tenants)]
            costs = [
                (dispatch_us(client, 0, waiting), dispatch_us(client, tenants, waiting))
                for _ in range(scale.room_pairs)
            ]
            sizes = [bytes_per_waiting_call(client, number, tenants) for number in (1, tenants)]
        finally:
            client.close()
    return Values(
        {
            "room_moves_per_s": moves[0],
            "room_moves_per_s_in_turns": moves[1],
            "room_dispatch_us": statistics.median(one for one, _ in costs),
            "room_dispatch_with_small_tenants_over_without": statistics.median(many / one for one, many in costs),
            "room_bytes_per_call": sizes[0],
            "room_bytes_per_call_many_tenants": sizes[1],
        },
        {"room": scale.room_calls, "room_tenants": scale.room_tenants},
    )


LIMITS_MEASURES: dict[Figure, Measure] = {Figure.LIMITS: limits, Figure.ROOM: room}
