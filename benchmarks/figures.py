"""The measurements. Each takes a warm contender and returns its values, and how many calls they stand for.

Every result is compared with what the task must return: a fast wrong answer is a failure.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import psutil

from benchmarks.contender import ARGUMENT, Contender, Task
from benchmarks.cores import with_a_core_of_their_own
from benchmarks.processes import ProcessTree
from benchmarks.sizes import Figure, Scale

SHORT_DRAINS = 3
"""How often the shortest queue is drained before the longer ones, and again after them."""


class WrongResults(Exception):
    """A contender returned too few results, or others than the task's."""


@dataclass(frozen=True)
class Cpu:
    """Processor seconds, by process: the orchestrator is this one."""

    orchestrator_s: float
    worker_s: float
    redis_s: float

    def per_call_since(self, before: Cpu, n: int, figure: str) -> dict[str, float]:
        """Microseconds for each of `n` calls, all three together and one by one."""
        used = {
            "orchestrator": self.orchestrator_s - before.orchestrator_s,
            "worker": self.worker_s - before.worker_s,
            "redis": self.redis_s - before.redis_s,
        }
        by_process = {f"{figure}_{name}_us_per_call": spent_s / n * 1e6 for name, spent_s in used.items()}
        return {f"{figure}_us_per_call": sum(by_process.values()), **by_process}


@dataclass(frozen=True)
class Stage:
    """A contender with its worker, warmed up; `rate` is what the warm-up reached, in calls per second."""

    contender: Contender
    workers: ProcessTree
    server: ProcessTree
    scale: Scale
    rate: float = 0.0

    async def calls(self, n: int, task: Task = Task.NOOP) -> None:
        """Submit `n` calls at once and wait for all of them."""
        batch = await self.contender.submit(task, n)
        check(await batch.results(), n)

    def worker_on_its_own_core(self) -> AbstractContextManager[None]:
        """Give the worker one core, and this process and the server the rest, while the block runs."""
        worker = [process.pid for process in self.workers.processes()]
        return with_a_core_of_their_own(worker, beside=(os.getpid(), *(each.pid for each in self.server.processes())))

    def cpu(self) -> Cpu:
        """Processor seconds used so far."""
        return Cpu(time.process_time(), self.workers.cpu_s(), self.server.cpu_s())


@dataclass(frozen=True)
class Values:
    """What one measurement found, and the number of calls behind it."""

    values: dict[str, float]
    calls: dict[str, int]


def check(results: list[object], n: int) -> None:
    """Raise WrongResults unless there are `n` results, all of them the task's argument."""
    if len(results) != n or any(result != ARGUMENT for result in results):
        raise WrongResults(f"expected {n} times {ARGUMENT}, got {len(results)} results such as {results[:3]}")


async def latency(stage: Stage) -> Values:
    """Submit to result with one call in flight, and what such a call costs."""
    samples_ms: list[float] = []
    cpu = stage.cpu()
    give_up = time.perf_counter() + stage.scale.figure_limit_s
    while len(samples_ms) < stage.scale.latency_calls and time.perf_counter() < give_up:
        start = time.perf_counter()
        await stage.calls(1)
        samples_ms.append((time.perf_counter() - start) * 1_000)
    spent = stage.cpu().per_call_since(cpu, len(samples_ms), "lone_cpu")
    percentiles = statistics.quantiles(samples_ms, n=100, method="inclusive")
    return Values(
        {"latency_p50_ms": percentiles[49], "latency_p99_ms": percentiles[98], **spent}, {"latency": len(samples_ms)}
    )


async def burst(stage: Stage) -> Values:
    """All calls at once; processor time is taken over the same calls."""
    n = stage.scale.affordable(stage.scale.burst_calls, stage.rate)
    return await better_placed(stage, "burst", n, "cpu", lambda: stage.calls(n))


async def conversations(stage: Stage) -> Values:
    """Many conversations at once, each of which sends its calls and waits for their results."""
    each = stage.scale.calls_each
    count = stage.scale.affordable(stage.scale.conversations * each, stage.rate) // each

    async def all_at_once() -> None:
        await asyncio.gather(*(stage.calls(each) for _ in range(count)))

    return await better_placed(stage, "conversations", count * each, "conversations_cpu", all_at_once)


async def better_placed(stage: Stage, figure: str, n: int, spent: str, make: Callable[[], Awaitable[None]]) -> Values:
    """Make the same `n` calls twice: the processes where the system puts them, and the worker on a core of its own.

    What is quicker counts, and which that was is a value too. Some contenders win a quarter by the one and some by
    the other, and which they get by chance says nothing about them.
    """
    tries: list[dict[str, float]] = []
    for placement in (nullcontext(), stage.worker_on_its_own_core()):
        with placement:
            cpu, start = stage.cpu(), time.perf_counter()
            await make()
            took_s = time.perf_counter() - start
            used = stage.cpu().per_call_since(cpu, n, spent)
        tries.append({f"{figure}_calls_per_s": n / took_s, f"{figure}_on_own_core": float(len(tries)), **used})
    return Values(max(tries, key=lambda values: values[f"{figure}_calls_per_s"]), {figure: n})


async def sleeps(stage: Stage) -> Values:
    """Tasks that only wait, all at once, on one worker."""
    start = time.perf_counter()
    await stage.calls(stage.scale.sleeps, Task.SLEEP)
    return Values({"sleep_fanout_s": time.perf_counter() - start}, {"sleeps": stage.scale.sleeps})


async def drain(stage: Stage) -> Values:
    """Calls per second between the first and the last result of a queue that had filled up.

    A size that would need more than the limit, at the rate of the one before it, is left out. The ratio compares the
    longest queue with the shortest, which drains in a blink: the median of some, before and after the others.
    """
    shortest, *others = stage.scale.drain_sizes
    if shortest / stage.rate > stage.scale.drain_limit_s:
        return Values({}, {"drain": 0})
    rates: dict[int, float] = {}
    short = [await drained(stage, shortest) for _ in range(SHORT_DRAINS)]
    rate = statistics.median(short)
    for size in others:
        if size / rate <= stage.scale.drain_limit_s:
            rates[size] = rate = await drained(stage, size)
    short += [await drained(stage, shortest) for _ in range(SHORT_DRAINS)]
    rates[shortest] = statistics.median(short)
    values = {f"drain_{size}_calls_per_s": rates[size] for size in sorted(rates)}
    if len(rates) > 1:
        values["drain_ratio"] = rates[max(rates)] / rates[min(rates)]
    return Values(values, {"drain": max(rates)})


async def drained(stage: Stage, size: int) -> float:
    """Fill the queue while the worker stands still, let it go, and return its calls per second."""
    stage.workers.pause()
    try:
        batch = await stage.contender.submit(Task.NOOP, size, tells_first=True)
        await batch.queued()
    finally:
        stage.workers.resume()
    await batch.first()
    start = time.perf_counter()
    check(await batch.results(), size)
    return (size - 1) / (time.perf_counter() - start)


async def memory(stage: Stage) -> Values:
    """What orchestrator and worker hold after many calls, above what they held when warm."""
    limit = int(stage.rate * stage.scale.long_figure_limit_s)
    steps = max(1, min(stage.scale.memory_calls, limit) // stage.scale.memory_step)
    await stage.calls(stage.scale.memory_step)
    before = resident_mib(stage)
    for _ in range(steps):
        await stage.calls(stage.scale.memory_step)
    after = resident_mib(stage)
    return Values(
        {
            "memory_growth_mib": sum(after) - sum(before),
            "memory_orchestrator_growth_mib": after[0] - before[0],
            "memory_worker_growth_mib": after[1] - before[1],
            "memory_orchestrator_before_mib": before[0],
            "memory_orchestrator_after_mib": after[0],
            "memory_worker_before_mib": before[1],
            "memory_worker_after_mib": after[1],
        },
        {"memory": steps * stage.scale.memory_step},
    )


def resident_mib(stage: Stage) -> tuple[float, float]:
    """Resident memory of the orchestrator (this process) and of the worker's tree."""
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20, stage.workers.memory_mib()


Measure = Callable[[Stage], Awaitable[Values]]
MEASURES: dict[Figure, Measure] = {
    Figure.LATENCY: latency,
    Figure.BURST: burst,
    Figure.CONVERSATIONS: conversations,
    Figure.SLEEPS: sleeps,
    Figure.DRAIN: drain,
    Figure.MEMORY: memory,
}
