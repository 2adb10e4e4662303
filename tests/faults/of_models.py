"""Models' servers that hang, drop streams, refuse, or give two calls one id: the rehearsal model's, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.arena import Arena, Form, fault
from tests.faults.load import UNFINISHED_AFTER_S
from tests.faults.of_orchestrators import note_run
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, HttpOptions, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.rehearsal.faults import CutStream, Dialect, ErrorStatus, Fault, Hang
from toolfleet.orchestrator.run.states import State

REFUSES_FOR_S = {Form.ONCE: 1.0, Form.SHORT: 5.0, Form.LONG: 30.0}
SILENCE_S = 0.5
TURNS = 2


@asynccontextmanager
async def rehearsed(arena: Arena, **options: Any) -> AsyncIterator[tuple[RehearsalServer, Orchestrator]]:
    """An orchestrator whose model's server is about to misbehave."""
    async with RehearsalServer(**options) as server:
        http = HttpOptions(silence_s=SILENCE_S, first_wait_s=0.1, opens_after=0)
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=http)
        async with Orchestrator(model=model, settings=arena.settings) as orchestrator:
            yield server, orchestrator


async def converse(arena: Arena, orchestrator: Orchestrator) -> None:
    """A conversation of two turns, two calls each; what the model asked for in the end is what counts."""
    turns = [arena.load.mixture(2) for _ in range(TURNS)]
    planned = {ask.nonce: ask for turn in turns for ask in turn}
    program = " then ".join(" ".join(f"call {ask.tool} {ask.arguments}" for ask in turn) for turn in turns)
    try:
        async with asyncio.timeout(UNFINISHED_AFTER_S):
            run = await orchestrator.run(program)
    except TimeoutError:
        arena.load.asks += planned.values()
        return
    # A stream that broke may have brought one call of two; the one that never came was never asked for.
    asked = {json.loads(call.arguments)["nonce"] for call in run.calls}
    arena.expect(run.state is State.DONE, f"a conversation ended as {run.state}: {run.reason}")
    arena.expect(asked, "a conversation ended without a call")
    asks = [ask for ask in planned.values() if ask.nonce in asked]
    arena.load.asks += asks
    note_run(run, asks)


async def converse_through(arena: Arena, faults: Sequence[Fault], **options: Any) -> None:
    """As many conversations as there are faults, all at once; each fault hits one request."""
    async with rehearsed(arena, faults=faults, **options) as (_, orchestrator):
        for _ in faults:
            arena.injected()
        async with asyncio.TaskGroup() as group:
            for _ in faults:
                group.create_task(converse(arena, orchestrator))


@fault("the model's server hangs, before its answer or within", once=4, short=20, long=100)
async def model_hangs(arena: Arena, times: int) -> None:
    await converse_through(arena, [Hang(arena.rng.choice([None, 1, 2, 4])) for _ in range(times)])


@fault("the model's server drops the stream", once=8, short=40, long=200)
async def model_drops_the_stream(arena: Arena, times: int) -> None:
    await converse_through(arena, [CutStream(arena.rng.randrange(8)) for _ in range(times)])


@fault("the model's server answers 429 for a while, and says how long", once=4, short=10, long=20)
async def model_is_busy(arena: Arena, times: int) -> None:
    async with rehearsed(arena) as (server, orchestrator):
        over_s = time.monotonic() + REFUSES_FOR_S[arena.form]

        async def refuse() -> None:
            while (left_s := over_s - time.monotonic()) > 0:
                server._faults.clear()
                server._faults.extend([ErrorStatus(429, retry_after=str(math.ceil(left_s)))] * 100)
                await asyncio.sleep(0.05)
            server._faults.clear()

        refusing = asyncio.create_task(refuse())
        await asyncio.sleep(0)
        async with arena.injecting(), asyncio.TaskGroup() as group:
            for _ in range(times):
                group.create_task(converse(arena, orchestrator))
        await refusing


@fault("the model's server gives two calls the same id, or none", once=4, short=20, long=100)
async def model_repeats_ids(arena: Arena, times: int) -> None:
    for ids in ("doubled", "missing"):
        async with rehearsed(arena, dialect=Dialect(ids=ids)) as (_, orchestrator), asyncio.TaskGroup() as group:
            for _ in range(max(1, times // 2)):
                arena.injected()
                group.create_task(converse(arena, orchestrator))
