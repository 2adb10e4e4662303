"""What a parked run costs, and how soon it goes on: `python -m benchmarks.parked`.

One orchestrator in this process, one real worker, one real server. Every run waits for a job in another system; the
model is in this process too, so that what is measured is the orchestrator.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import psutil
import redis.asyncio
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.parked_tools import QUEUE, TOOL
from toolfleet.calls import Returned, call_id
from toolfleet.connections import connect_async
from toolfleet.jobs import Completion, complete
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import ReplyComplete
from toolfleet.orchestrator.run.states import State
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

AT_ONCE = 200
WARM_UP = 500
"""Runs that are over before anything is measured: imports, connections and pools are not what a run costs."""

LOOK_EVERY_S = 0.05
LIMIT_S = 900.0


@dataclass(frozen=True)
class Finding:
    """What was measured."""

    runs: int
    begin_s: float
    rss_bytes_per_run: float
    traced_bytes_per_run: float
    tasks_before: int
    tasks_parked: int
    connections_before: int
    connections_parked: int
    idle_cpu_percent: float
    server_idle_cpu_percent: float
    wakes: int
    wake_p50_ms: float
    wake_p99_ms: float
    wake_max_ms: float
    adopted_s: float
    """From the new orchestrator's start until it owns every run, and each rests again."""
    ended_s: float
    """From the first completion of all that were left until the last of their runs had ended."""
    forgotten: int


class Asking:
    """A model that asks for one job, and answers when it is back. Tells when each run was asked about again."""

    name = "asking"

    def __init__(self) -> None:
        self.woken: dict[str, asyncio.Future[float]] = {}

    async def stream(
        self, messages: Sequence[Message], tools: Any, **options: Any
    ) -> AsyncGenerator[ReplyComplete, None]:
        del tools, options
        number = messages[0].content
        if isinstance(messages[-1], ToolMessage):
            said, reason = AssistantMessage(content="done"), "stop"
            if woken := self.woken.get(number):
                woken.set_result(time.perf_counter())
        else:
            request = RequestedCall(id="call-0", name=TOOL, arguments=json.dumps({"number": int(number)}))
            said, reason = AssistantMessage(tool_calls=(request,)), "tool_calls"
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        pass


class Bench:
    """One fleet, one orchestrator after another."""

    def __init__(self, settings: Settings, client: redis.asyncio.Redis) -> None:
        self.settings = settings
        self.client = client
        self.model = Asking()
        self._seal = Seal(settings)

    def orchestrator(self) -> Orchestrator:
        return Orchestrator(model=self.model, settings=self.settings)

    async def park(self, orchestrator: Orchestrator, run_ids: Sequence[str]) -> None:
        """Begin runs, some at a time; return when every one of them rests and no message is left in the queue."""
        for start in range(0, len(run_ids), AT_ONCE):
            some = run_ids[start : start + AT_ONCE]
            await asyncio.gather(*(orchestrator.start(str(int(run_id, 16)), run_id=run_id) for run_id in some))
            # So many connections are opened as commands are under way at once, and kept: those are not what is counted.
            await self.until_at_rest(orchestrator)
        assert set(await self.states(run_ids)) == {State.PARKED.value.encode()}

    async def until_at_rest(self, orchestrator: Orchestrator) -> None:
        stream = self.settings.keys.queue(QUEUE, Priority.NORMAL)

        async def is_at_rest() -> bool:
            return orchestrator.working == 0 and await self.client.xlen(stream) == 0

        await until(is_at_rest)

    async def complete(self, run_ids: Iterable[str]) -> None:
        """End the jobs of these runs, as their callbacks would."""
        run_ids = list(run_ids)
        for start in range(0, len(run_ids), AT_ONCE):
            ended = await asyncio.gather(
                *(
                    complete(self.client, self.settings, self._seal, call_id(run_id, 1, 0), Returned(content="there"))
                    for run_id in run_ids[start : start + AT_ONCE]
                )
            )
            assert set(ended) == {Completion.COMPLETED}, ended

    async def states(self, run_ids: Iterable[str]) -> list[bytes | None]:
        pipeline = self.client.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hget(self.settings.keys.head(run_id), "state")
        return await pipeline.execute()

    async def wake(self, run_ids: Sequence[str]) -> list[float]:
        """Seconds from the completion of a job to its run's next question to the model, one run after another."""
        took_s = []
        for run_id in run_ids:
            number = str(int(run_id, 16))
            woken = self.model.woken[number] = asyncio.get_running_loop().create_future()
            begin = time.perf_counter()
            await self.complete([run_id])
            took_s.append(await woken - begin)
            del self.model.woken[number]
        return took_s

    async def connections(self) -> int:
        return int((await self.client.info("clients"))["connected_clients"])

    async def server_cpu_s(self) -> float:
        used = await self.client.info("cpu")
        return float(used["used_cpu_sys"] + used["used_cpu_user"])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is so."""
    async with asyncio.timeout(LIMIT_S):
        while not await condition():  # noqa: ASYNC110  # that nothing happens any more is no event
            await asyncio.sleep(LOOK_EVERY_S)


def settle_memory() -> None:
    """Give back what nobody uses, so that what remains is what runs cost."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def rss_bytes() -> int:
    settle_memory()
    return psutil.Process().memory_info().rss


def ids(first: int, count: int) -> list[str]:
    return [f"{number:032x}" for number in range(first, first + count)]


async def warm_up(bench: Bench, orchestrator: Orchestrator, first: int) -> None:
    run_ids = ids(first, WARM_UP)
    await bench.park(orchestrator, run_ids)
    await bench.complete(run_ids)
    await bench.until_at_rest(orchestrator)


async def traced(bench: Bench, runs: int) -> float:
    """Bytes of Python's objects for each parked run."""
    async with bench.orchestrator() as orchestrator:
        await warm_up(bench, orchestrator, 10**7)
        run_ids = ids(2 * 10**7, runs)
        tracemalloc.start()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await bench.park(orchestrator, run_ids)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return (after - before) / runs


async def measured(settings: Settings, *, runs: int, wakes: int, idle_s: float, trace: bool) -> Finding:
    """All figures, with one fleet."""
    async with connect_async(settings) as client:
        bench = Bench(settings, client)
        async with bench.orchestrator() as orchestrator:
            await warm_up(bench, orchestrator, 10**6)
            run_ids = ids(0, runs)
            connections_before = await bench.connections()
            tasks_before, rss_before = len(asyncio.all_tasks()), rss_bytes()
            begin = time.perf_counter()
            await bench.park(orchestrator, run_ids)
            begin_s = time.perf_counter() - begin
            connections_parked = await bench.connections()
            rss_parked, tasks_parked = rss_bytes(), len(asyncio.all_tasks())

            cpu = psutil.Process().cpu_times()
            server_s = await bench.server_cpu_s()
            await asyncio.sleep(idle_s)
            used = psutil.Process().cpu_times()
            idle_s_used = used.user + used.system - cpu.user - cpu.system
            server_s = await bench.server_cpu_s() - server_s

            to_wake = random.sample(run_ids, min(wakes, runs // 2))
            took_ms = sorted(1000 * each for each in await bench.wake(to_wake))
            await bench.until_at_rest(orchestrator)

        left = sorted(set(run_ids) - set(to_wake))
        begin = time.perf_counter()
        async with bench.orchestrator() as orchestrator:

            async def has_all() -> bool:
                return orchestrator.adopted >= len(left) and orchestrator.working == 0

            await until(has_all)
            adopted_s = time.perf_counter() - begin
            begin = time.perf_counter()
            await bench.complete(left)
            await bench.until_at_rest(orchestrator)

            async def all_done() -> bool:
                return set(await bench.states(left)) == {State.DONE.value.encode()}

            with suppress(TimeoutError):  # then some are forgotten, which is a finding
                await until(all_done)
            ended_s = time.perf_counter() - begin
            states = await bench.states(run_ids)
        traced_bytes = await traced(bench, runs) if trace else 0.0
    return Finding(
        runs=runs,
        begin_s=begin_s,
        rss_bytes_per_run=(rss_parked - rss_before) / runs,
        traced_bytes_per_run=traced_bytes,
        tasks_before=tasks_before,
        tasks_parked=tasks_parked,
        connections_before=connections_before,
        connections_parked=connections_parked,
        idle_cpu_percent=100 * idle_s_used / idle_s,
        server_idle_cpu_percent=100 * server_s / idle_s,
        wakes=len(took_ms),
        wake_p50_ms=statistics.median(took_ms),
        wake_p99_ms=took_ms[int(len(took_ms) * 0.99)],
        wake_max_ms=took_ms[-1],
        adopted_s=adopted_s,
        ended_s=ended_s,
        forgotten=sum(state != State.DONE.value.encode() for state in states),
    )


def as_table(finding: Finding) -> Table:
    """The finding, for people."""
    table = Table(title=f"{finding.runs:,} parked runs in one orchestrator")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("begun and parked in", f"{finding.begin_s:.1f} s")
    table.add_row("memory per run, resident", f"{finding.rss_bytes_per_run:.0f} bytes")
    table.add_row("memory per run, Python's objects", f"{finding.traced_bytes_per_run:.0f} bytes")
    table.add_row("asyncio tasks before / while parked", f"{finding.tasks_before} / {finding.tasks_parked}")
    table.add_row("connections before / while parked", f"{finding.connections_before} / {finding.connections_parked}")
    table.add_row("orchestrator, processor, all parked", f"{finding.idle_cpu_percent:.1f} % of a core")
    table.add_row("server, processor, all parked", f"{finding.server_idle_cpu_percent:.1f} % of a core")
    table.add_row(f"wake-up p50 of {finding.wakes}", f"{finding.wake_p50_ms:.1f} ms")
    table.add_row("wake-up p99", f"{finding.wake_p99_ms:.1f} ms")
    table.add_row("wake-up max", f"{finding.wake_max_ms:.1f} ms")
    table.add_row("adopted by a new orchestrator in", f"{finding.adopted_s:.1f} s")
    table.add_row("all woken and ended in", f"{finding.ended_s:.1f} s")
    table.add_row("forgotten", f"{finding.forgotten}")
    return table


def main(
    *,
    runs: Annotated[int, typer.Option(min=10, help="Runs that are parked.")] = 10_000,
    wakes: Annotated[int, typer.Option(min=1, help="Runs that are woken one by one.")] = 500,
    idle_s: Annotated[float, typer.Option(min=1, help="How long nothing happens.")] = 10.0,
    trace: Annotated[bool, typer.Option(help="Count Python's objects too; takes a second round.")] = True,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure what parked runs cost."""
    with LocalFleet(["benchmarks.parked_tools"], pools={"io": 1}) as fleet:
        finding = asyncio.run(measured(fleet.settings, runs=runs, wakes=wakes, idle_s=idle_s, trace=trace))
    if json_:
        print(json.dumps({"about": about(quick=False), "parked": asdict(finding)}, indent=2))
    else:
        Console().print(as_table(finding))


if __name__ == "__main__":
    typer.run(main)
