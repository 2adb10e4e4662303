"""The measurements that only Toolfleet takes: turns, streamed replies, what waits, and what is left of a run.

Processor time is the orchestrator's alone (this process): the model is in it and answers at once, or is read from a
provider in another process.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple, cast

import aiohttp
from redis.asyncio import Redis

from benchmarks.asking_model import ANSWER, AskingModel
from benchmarks.canned_provider import TOKEN, provider
from benchmarks.contenders.toolfleet_orchestrator import ARGUMENTS, Toolfleet
from benchmarks.figures import Measure, Stage, Values, WrongResults
from benchmarks.limits_figures import LIMITS_MEASURES
from benchmarks.observed_figures import OBSERVED_MEASURES
from benchmarks.parked import Bench, ids, rss_bytes, warm_up
from benchmarks.sizes import Figure
from toolfleet import Limits, Orchestrator, ShardedOrchestrator
from toolfleet.connections import connect_async
from toolfleet.messages import AssistantMessage, RequestedCall, UserMessage
from toolfleet.orchestrator.models import OpenAIChat, ReplyComplete
from toolfleet.settings import Settings

PAUSE_S = 0.005
"""Between two tokens of a reply that comes as models write it: two hundred a second."""
SAME_FOR_S = 3.0
"""Redis has let go of what it lets go of: results leave within two seconds."""
AT_REST_WITHIN_S = 30.0


def settings_of(stage: Stage) -> Settings:
    """The fleet under trial."""
    return cast("Toolfleet", stage.contender).fleet_settings


def one_call(n: int = 1, tool: str = Toolfleet.noop) -> AssistantMessage:
    """A message that asks for `n` calls, which do nothing."""
    calls = (RequestedCall(id=str(number), name=tool, arguments=ARGUMENTS) for number in range(n))
    return AssistantMessage(tool_calls=tuple(calls))


async def run_to_its_end(orchestrator: Orchestrator | ShardedOrchestrator, turns: int) -> None:
    """One run of so many turns with one call each. Raises WrongResults unless it ends with the model's answer."""
    unlimited = Limits(calls=None, calls_per_tool=None)
    run = await orchestrator.run(str(turns), tools=[Toolfleet.noop], max_turns=turns + 1, limits=unlimited)
    if run.answer != ANSWER or len(run.calls) != turns:
        raise WrongResults(f"a run of {turns} turns ended as {run.state} with {len(run.calls)} calls: {run.reason}")


# --- turns ------------------------------------------------------------------------------------------------------------


async def turns(stage: Stage) -> Values:
    """Processor time per turn: of short runs, of a long one, and beyond what the calls alone cost."""
    scale, model = stage.scale, TurnClock()
    async with Orchestrator(model=model, settings=settings_of(stage)) as orchestrator:
        await many_runs(orchestrator, stage, runs=scale.runs_at_once)
        turn_us = 1e6 * await many_runs(orchestrator, stage, runs=scale.runs) / (scale.runs * scale.short_turns)
        call_us = 1e6 * await lone_calls(orchestrator, stage) / scale.runs
        long = [await long_run(orchestrator, model, scale.long_turns) for _ in range(scale.long_runs)]
    long_us, last_over_first = (statistics.median(each) for each in zip(*long, strict=True))
    return Values(
        {
            "turn_cpu_us": turn_us,
            "turn_call_cpu_us": call_us,
            "turn_beyond_calls_cpu_us": turn_us - call_us,
            "long_run_turn_cpu_us": long_us,
            "long_run_last_over_first": last_over_first,
        },
        {"turns": scale.runs * scale.short_turns, "long_turns": scale.long_turns},
    )


async def long_run(orchestrator: Orchestrator, model: TurnClock, turns: int) -> tuple[float, float]:
    """Microseconds for a turn of a run of so many, and the last tenth of its turns over the second."""
    model.cpu_s.clear()
    await run_to_its_end(orchestrator, turns)
    tenth = turns // 10
    first, last = model.us_per_turn(tenth, 2 * tenth), model.us_per_turn(-1 - tenth, -1)
    return model.us_per_turn(0, -1), last / first


class TurnClock(AskingModel):
    """Notes the processor time at which each turn begins."""

    def __init__(self) -> None:
        super().__init__(Toolfleet.noop, on_turn=lambda _turn: self.cpu_s.append(time.process_time()))
        self.cpu_s: list[float] = []

    def us_per_turn(self, begin: int, end: int) -> float:
        """The mean from the turn at one place to that at another."""
        size = len(self.cpu_s)
        return 1e6 * (self.cpu_s[end] - self.cpu_s[begin]) / ((end - begin) % size)


async def many_runs(orchestrator: Orchestrator, stage: Stage, *, runs: int) -> float:
    """Short runs, some at a time; the processor seconds of all of them."""
    left = iter(range(runs))

    async def one_after_another() -> None:
        for _ in left:
            await run_to_its_end(orchestrator, stage.scale.short_turns)

    begin = time.process_time()
    await asyncio.gather(*(one_after_another() for _ in range(stage.scale.runs_at_once)))
    return time.process_time() - begin


async def lone_calls(orchestrator: Orchestrator, stage: Stage) -> float:
    """As many calls outside of runs as there were runs, and as many at a time; their processor seconds."""
    message, left = one_call(), iter(range(stage.scale.runs))

    async def one_after_another() -> None:
        for _ in left:
            await orchestrator.execute(message)

    begin = time.process_time()
    await asyncio.gather(*(one_after_another() for _ in range(stage.scale.runs_at_once)))
    return time.process_time() - begin


# --- a streamed reply -------------------------------------------------------------------------------------------------


async def stream(stage: Stage) -> Values:
    """Processor time for one streamed reply: as models write it, all at once, and as bytes that nobody understands."""
    scale = stage.scale
    with provider(scale.stream_tokens, pause_s=PAUSE_S) as written, provider(scale.stream_tokens, pause_s=0) as whole:
        values = {
            "stream_cpu_ms": await replies(stage, written),
            "stream_at_once_cpu_ms": await replies(stage, whole),
            "stream_bare_aiohttp_cpu_ms": await bare_replies(stage, written),
            "stream_at_once_bare_aiohttp_cpu_ms": await bare_replies(stage, whole),
        }
    return Values(values, {"stream": scale.streams, "stream_tokens": scale.stream_tokens})


async def replies(stage: Stage, base_url: str) -> float:
    """Milliseconds for each reply, read by our model of OpenAI's."""
    model, question = OpenAIChat("canned", base_url=base_url, api_key="none"), [UserMessage(content="say much")]

    async def read() -> None:
        async with aclosing(model.stream(question, ())) as reply:
            *_, last = [event async for event in reply]
        if not isinstance(last, ReplyComplete) or last.message.content != TOKEN * stage.scale.stream_tokens:
            raise WrongResults(f"the canned reply was read as {last}")

    try:
        return await cpu_ms_of_each(stage, read)
    finally:
        await model.aclose()


async def bare_replies(stage: Stage, base_url: str) -> float:
    """The same by aiohttp alone."""
    async with aiohttp.ClientSession() as session:

        async def read() -> None:
            async with session.post(f"{base_url}/chat/completions", json={"say": "much"}) as answer:
                async for _ in answer.content.iter_any():
                    pass

        return await cpu_ms_of_each(stage, read)


async def cpu_ms_of_each(stage: Stage, read: Callable[[], Awaitable[None]]) -> float:
    """Milliseconds of processor time for each reply, some of them at a time."""
    at_once = stage.scale.streams_at_once
    await asyncio.gather(*(read() for _ in range(at_once)))  # connections are made
    begin = time.process_time()
    for _ in range(stage.scale.streams // at_once):
        await asyncio.gather(*(read() for _ in range(at_once)))
    return 1e3 * (time.process_time() - begin) / (stage.scale.streams // at_once * at_once)


# --- what waits, and what is left -------------------------------------------------------------------------------------


async def waiting_calls(stage: Stage) -> Values:
    """What a call costs the orchestrator that waits in its queue: memory each, processor time of all."""
    n = stage.scale.waiting_calls
    contender = cast("Toolfleet", stage.contender)
    orchestrator, message, sent = contender.orchestrator, one_call(n), contender.orchestrator.dispatched
    before = rss_bytes()
    stage.workers.pause()
    try:
        waiting = asyncio.create_task(orchestrator.execute(message))
        while orchestrator.dispatched < sent + n:  # noqa: ASYNC110  # nothing tells it
            await asyncio.sleep(0.05)
        held = rss_bytes() - before
        idle_percent = await idle_cpu_percent(stage)
    finally:
        stage.workers.resume()
    results = await waiting
    if len(results) != n:
        raise WrongResults(f"{len(results)} of {n} calls that waited came back")
    return Values(
        {"waiting_call_bytes": held / n, "waiting_calls_idle_cpu_percent": idle_percent}, {"waiting_calls": n}
    )


async def waiting_runs(stage: Stage) -> Values:
    """What a run costs the orchestrator that waits for a job elsewhere."""
    n, settings = stage.scale.waiting_runs, settings_of(stage)
    async with connect_async(settings) as client:
        bench = Bench(settings, client)
        async with bench.orchestrator() as orchestrator:
            await warm_up(bench, orchestrator, 10**6)
            run_ids = ids(0, n)
            before = rss_bytes()
            await bench.park(orchestrator, run_ids)
            held = rss_bytes() - before
            idle_percent = await idle_cpu_percent(stage)
            await bench.complete(run_ids)
            await bench.until_at_rest(orchestrator)
    return Values({"waiting_run_bytes": held / n, "waiting_runs_idle_cpu_percent": idle_percent}, {"waiting_runs": n})


async def idle_cpu_percent(stage: Stage) -> float:
    """Processor time of this process while nothing happens, in percent of one core."""
    cpu_s, begin = time.process_time(), time.perf_counter()
    await asyncio.sleep(stage.scale.idle_s)
    return 100 * (time.process_time() - cpu_s) / (time.perf_counter() - begin)


async def ended_runs(stage: Stage) -> Values:
    """What Redis keeps of a run of one call that has ended."""
    n, settings = stage.scale.ended_runs, settings_of(stage)
    async with (
        connect_async(settings) as client,
        Orchestrator(model=AskingModel(Toolfleet.noop), settings=settings) as orchestrator,
    ):
        await asyncio.gather(*(run_to_its_end(orchestrator, 1) for _ in range(stage.scale.runs_at_once)))
        before = await kept(client)
        for _ in range(n // stage.scale.runs_at_once):
            await asyncio.gather(*(run_to_its_end(orchestrator, 1) for _ in range(stage.scale.runs_at_once)))
        made = n // stage.scale.runs_at_once * stage.scale.runs_at_once
        after = await kept(client)
    # Their share of the tables: that these double now, for all keys that were there before, is nothing of these runs.
    each = (after.bytes - before.bytes + (after.keys - before.keys) * after.table_bytes_per_key) / made
    return Values({"redis_bytes_per_ended_run": each}, {"ended_runs": made})


class Kept(NamedTuple):
    """What Redis holds, without what it keeps for connections and for its file."""

    bytes: int
    """Without the tables that find keys and when they expire."""
    keys: int
    table_bytes_per_key: float


async def kept(client: Redis) -> Kept:
    """Look at Redis once it is at rest."""
    give_up, same_since, last = time.monotonic() + AT_REST_WITHIN_S, time.monotonic(), -1
    while time.monotonic() < give_up and time.monotonic() - same_since < SAME_FOR_S:
        keys = await client.dbsize()
        if keys != last:
            last, same_since = keys, time.monotonic()
        await asyncio.sleep(0.2)
    memory, stats = await client.info("memory"), await client.memory_stats()
    tables = sum(stats["db.0"].values())
    held = memory["used_memory"] - memory["mem_clients_normal"] - memory["mem_aof_buffer"]
    return Kept(held - tables, stats["keys.count"], tables / max(1, stats["keys.count"]))


OWN_MEASURES: dict[Figure, Measure] = {
    Figure.TURNS: turns,
    Figure.STREAM: stream,
    Figure.ENDED_RUNS: ended_runs,
    Figure.WAITING_CALLS: waiting_calls,
    Figure.WAITING_RUNS: waiting_runs,
    **LIMITS_MEASURES,
    **OBSERVED_MEASURES,
}
