"""What is measured: one point for each number of workers, orchestrators and waiting calls."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final, Literal

from pydantic import BaseModel

from benchmarks.scale.driver import Order
from benchmarks.scale.stand import Stand, standing

Axis = Literal["workers", "orchestrators", "waiting"]

SLOTS_HELD: Final = 100
"""What keeps calls waiting, so that the worker is alive and warm while the queue fills up."""

WARM_UPS: Final = 3
LEAST_CALLS: Final = 100_000
"""So many calls are measured at each place, whatever waits at once: what they leave behind for some minutes, such as
claims, is the same then."""


class Point(BaseModel):
    """One measurement. Processor time is of all processes of a kind together, for each call."""

    axis: Axis
    tool: str
    at: int
    """How many there were of what the axis counts."""
    workers: int
    orchestrators: int
    calls: int
    seconds: float
    orchestrator_us: float
    worker_us: float
    redis_us: float
    rewriting_us: float
    """Of the server's children, which write its append-only file anew; they may have another core."""
    commands: float
    bytes_in: float
    bytes_out: float
    redis_bytes_per_waiting_call: float | None = None
    orchestrator_bytes_per_waiting_call: float | None = None

    @property
    def calls_per_s(self) -> float:
        """Calls that had their results, in a second."""
        return self.calls / self.seconds

    @property
    def cpu_us(self) -> float:
        """Processor time of everything, in microseconds for each call."""
        return self.orchestrator_us + self.worker_us + self.redis_us + self.rewriting_us


def of_workers(counts: tuple[int, ...], calls: int) -> Iterator[Point]:
    """More worker processes, for tools that wait as an HTTP request does."""
    for tool in ("wait_10ms", "wait_100ms"):
        for count in counts:
            with standing(workers=count) as stand:
                yield at_once(stand, "workers", count, tool, calls)


def of_orchestrators(counts: tuple[int, ...], calls: int) -> Iterator[Point]:
    """More orchestrators, each with its share of the calls."""
    for count in counts:
        with standing(workers=2, orchestrators=count) as stand:
            yield at_once(stand, "orchestrators", count, "nothing", calls)


def of_waiting(counts: tuple[int, ...], least_calls: int = LEAST_CALLS) -> Iterator[Point]:
    """More calls in the queue: what each costs from being sent to its result, and what it takes while it waits."""
    for count in counts:
        with standing(concurrency=SLOTS_HELD) as stand:
            yield waited(stand, count, max(1, least_calls // count))


def at_once(stand: Stand, axis: Axis, at: int, tool: str, calls: int) -> Point:
    """Send all calls, wait for all results."""
    stand.carry_out(Order(tool=tool, calls=max(calls // 10, 100 * len(stand.drivers))))

    def work() -> tuple[float, float]:
        answers = stand.carry_out(Order(tool=tool, calls=calls))
        return max(answer.seconds for answer in answers), sum(answer.cpu_s for answer in answers)

    return _measured(stand, axis, at, tool, calls, work)


def waited(stand: Stand, count: int, rounds: int) -> Point:
    """Fill the queue while every slot is held, then let go; so many times."""
    for _ in range(WARM_UPS):
        stand.carry_out(Order(tool="nothing", calls=1000))
    taken: list[tuple[float, float]] = []

    def work() -> tuple[float, float]:
        answers = []
        for _ in range(rounds):
            empty_bytes = stand.memory_bytes()
            answers += stand.carry_out(Order(tool="hold", calls=SLOTS_HELD, settled=False))
            resident_bytes = answers[-1].resident_bytes
            answers += stand.carry_out(Order(tool="nothing", calls=count, settled=False))
            taken.append(
                ((stand.memory_bytes() - empty_bytes) / count, (answers[-1].resident_bytes - resident_bytes) / count)
            )
            stand.let_go.touch()
            answers += stand.carry_out(Order(tool="nothing", calls=0, collect=True))
            stand.let_go.unlink()
        return sum(answer.seconds for answer in answers), sum(answer.cpu_s for answer in answers)

    point = _measured(stand, "waiting", count, "nothing", rounds * (count + SLOTS_HELD), work)
    in_redis, in_orchestrator = (statistics.median(each) for each in zip(*taken, strict=True))
    return point.model_copy(
        update={
            "redis_bytes_per_waiting_call": in_redis,
            "orchestrator_bytes_per_waiting_call": in_orchestrator,
        }
    )


def _measured(
    stand: Stand, axis: Axis, at: int, tool: str, calls: int, work: Callable[[], tuple[float, float]]
) -> Point:
    before = stand.used()
    seconds, orchestrators_s = work()
    used = stand.used().since(before)
    return Point(
        axis=axis,
        tool=tool,
        at=at,
        workers=len(stand.workers),
        orchestrators=len(stand.drivers),
        calls=calls,
        seconds=seconds,
        orchestrator_us=orchestrators_s / calls * 1e6,
        worker_us=used.worker_s / calls * 1e6,
        redis_us=used.redis_s / calls * 1e6,
        rewriting_us=used.rewriting_s / calls * 1e6,
        commands=used.commands / calls,
        bytes_in=used.bytes_in / calls,
        bytes_out=used.bytes_out / calls,
    )
