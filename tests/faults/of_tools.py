"""Tools that kill, block, leak, fill or never end, each beside well-behaved neighbours that must not notice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from tests.faults.arena import LEASE_S, Arena, counted, fault
from tests.faults.judge import IN_DOUBT, RETURNED, Ask, Injection
from tests.faults.load import IN_PROCESSES, MIXED
from toolfleet.calls import FailureKind

CRASHED = frozenset({FailureKind.CRASHED.value})
TIMED_OUT = frozenset({FailureKind.TIMED_OUT.value})
DOUBTFUL = frozenset({IN_DOUBT})
MALFORMED = frozenset({FailureKind.BAD_ARGUMENTS.value, FailureKind.LIMIT.value})

NEIGHBOURS = (*MIXED, *IN_PROCESSES)


async def beside_neighbours(arena: Arena, asks: Sequence[Ask]) -> None:
    """Make the calls while ordinary ones come and go."""
    async with arena.load.running(conversations=2, calls=4, tools=NEIGHBOURS):
        for _ in asks:
            arena.injected()
        await arena.load.perform(asks)


async def in_turn(arena: Arena, times: int, tool: str, expects: frozenset[str], **arguments: Any) -> None:
    """So many calls of a tool, in messages of a few."""
    left = times
    while left:
        count = min(left, 4)
        await beside_neighbours(arena, [arena.load.ask(tool, expects=expects, **arguments) for _ in range(count)])
        left -= count


@fault("a call kills every process that it is given to", short=2, long=8)
async def poison_in_a_process(arena: Arena, times: int) -> None:
    dead = await counted(arena.settings, "dead:crashed")
    for _ in range(times):
        # One at a time: what dies beside it may be doubted as often as it.
        await beside_neighbours(arena, [arena.load.ask("poison_in_process", expects=CRASHED)])
    buried = await counted(arena.settings, "dead:crashed") - dead
    arena.expect(buried == times, f"{buried} of {times} poisonous calls are among the dead letters")


@fault("a call kills every worker that it is given to; a supervisor replaces them", short=1, long=5)
async def poison(arena: Arena, times: int) -> None:
    dead = await counted(arena.settings, "dead:crashed")
    replacing = asyncio.create_task(replace_the_dead(arena))
    for _ in range(times):
        neighbours = arena.load.mixture(20)
        for ask in neighbours:
            ask.expects |= CRASHED  # who shares every worker with the poison cannot be told from it
        arena.injected()
        await asyncio.gather(
            arena.load.perform([arena.load.ask("poison", expects=CRASHED)]), arena.load.perform(neighbours)
        )
    replacing.cancel()
    await asyncio.wait([replacing])
    buried = await counted(arena.settings, "dead:crashed") - dead
    arena.expect(buried >= times, f"{buried} of {times} poisonous calls are among the dead letters")


async def replace_the_dead(arena: Arena) -> None:
    while True:
        await arena.replenish(io=1)
        await asyncio.sleep(0.05)


@fault("a tool ends its process (os._exit)", once=2, short=5, long=20)
async def tool_leaves(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "leave", DOUBTFUL)


@fault("a tool crashes its process (a segmentation fault)", once=2, short=5, long=20)
async def tool_segfaults(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "segfault", DOUBTFUL)


@fault("a tool keeps 20 MB more with each call", once=4, short=10, long=40)
async def tool_leaks(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "leak", frozenset({RETURNED}), megabytes=20)


@fault("a tool blocks its worker's event loop for longer than the lease", short=2, long=5)
async def tool_blocks_the_loop(arena: Arena, times: int) -> None:
    for _ in range(times):
        began = time.monotonic()
        arena.injections.append(Injection(began, began + 1.5 * LEASE_S))
        blocking = arena.load.ask("block_the_loop", expects=frozenset({RETURNED}), seconds=1.5 * LEASE_S)
        await arena.load.perform([blocking, *arena.load.mixture(10)])
        attempts = [line for line in arena.ledger.read_text().splitlines() if line.split()[2] != "1"]
        mine = {ask.nonce for ask in arena.load.asks}
        repeated = [line for line in attempts if line.split()[0] in mine]
        arena.expect(not repeated, f"{len(repeated)} calls were started again while their worker lived")


@fault("a tool returns 50 MB", short=2, long=10)
async def tool_returns_too_much(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "enormous", frozenset({RETURNED, FailureKind.LIMIT.value}), megabytes=50)
    largest = max(len(ask.content) for ask in arena.load.asks)
    arena.expect(largest <= arena.settings.max_result_bytes + 200, f"a result of {largest} characters came through")


@fault("a coroutine never returns", once=2, short=5, long=20)
async def tool_never_returns(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "never", TIMED_OUT)


@fault("a function in a process never returns", once=2, short=4, long=20)
async def tool_never_returns_in_a_process(arena: Arena, times: int) -> None:
    await in_turn(arena, times, "never_in_process", TIMED_OUT)


BOMBS = {
    "deep": "[" * 200_000 + "]" * 200_000,
    "deeper than closed": '{"a":' * 100_000,
    "huge integer": "9" * 200_000,
    "huge exponent": "1e999999999",
    "many elements": "[" + "0," * 400_000 + "0]",
    "many keys": "{" + ",".join(f'"k{n}":0' for n in range(100_000)) + "}",
    "escaped surrogates": '"' + "\\ud800" * 50_000 + '"',
    "too large": '"' + "x" * (5 << 20) + '"',
}


@fault("a model's arguments are bombs of JSON: depth, size, numbers, elements", short=2, long=5)
async def json_bombs(arena: Arena, times: int) -> None:
    for _ in range(times):
        asks = []
        for bomb in BOMBS.values():
            ask = arena.load.ask("swallow", expects=MALFORMED | {RETURNED})
            ask.arguments = '{"nonce": ' + json.dumps(ask.nonce) + ', "value": ' + bomb + "}"
            asks.append(ask)
        await beside_neighbours(arena, asks)
