"""What is measured: one point for each number of workers, orchestrators, waiting calls and runs that these are of."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final, Literal

from pydantic import BaseModel

from benchmarks.scale.driver import Order
from benchmarks.scale.stand import Stand, standing

Axis = Literal["workers", "orchestrators", "waiting", "runs"]

SLOTS_HELD: Final = 100
"""What keeps calls waiting, so that the worker is alive and warm while the queue fills up."""

RUNS: Final = 100
"""Of so many runs the waiting calls are, where these are counted: as many as there are slots, so that each gets one."""

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
    beside_us: float | None = None
    """What a call cost at the smallest number of its axis right before and after: machines are faster and slower."""

    @property
    def over_beside(self) -> float | None:
        """The cost of a call over that."""
        return None if self.beside_us is None else self.cpu_us / self.beside_us

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


def of_waiting(counts: tuple[int, ...], least_calls: int = LEAST_CALLS, *, beside: int) -> Iterator[Point]:
    """More calls in the queue: what each costs from being sent to its result, and what it takes while it waits.

    So many as `beside` says are measured before and after each other number.
    """

    def of(count: int) -> Point:
        order = Order(tool="nothing", calls=count, message_calls=count // RUNS)
        with standing(concurrency=SLOTS_HELD) as stand:
            return waited(stand, "waiting", count, order, least_calls)

    before: Point | None = None
    for count in counts:
        if count == beside:
            before = of(count)
            yield before
            continue
        before = before or of(beside)
        point, after = of(count), of(beside)
        yield point.model_copy(update={"beside_us": (before.cpu_us + after.cpu_us) / 2})
        before = after


def of_runs(counts: tuple[int, ...], calls: int = LEAST_CALLS) -> Iterator[Point]:
    """The same with as many calls in the queue each time, of more runs: these take turns."""
    for count in counts:
        with standing(concurrency=SLOTS_HELD) as stand:
            yield waited(stand, "runs", count, Order(tool="nothing", calls=calls, message_calls=calls // count), calls)


def at_once(stand: Stand, axis: Axis, at: int, tool: str, calls: int) -> Point:
    """Send all calls, wait for all results."""
    stand.carry_out(Order(tool=tool, calls=max(calls // 10, 100 * len(stand.drivers))))

    def work() -> tuple[float, float]:
        answers = stand.carry_out(Order(tool=tool, calls=calls))
        return max(answer.seconds for answer in answers), sum(answer.cpu_s for answer in answers)

    return _measured(stand, axis, at, tool, calls, work)


def waited(stand: Stand, axis: Axis, at: int, order: Order, least_calls: int) -> Point:
    """Fill the queue while every slot is held, then let go; until so many calls have waited."""
    rounds = max(1, least_calls // order.calls)
    order = order.model_copy(update={"settled": False})
    for _ in range(WARM_UPS):
        stand.carry_out(Order(tool="nothing", calls=1000))
    taken: list[tuple[float, float]] = []

    def work() -> tuple[float, float]:
        answers = []
        for _ in range(rounds):
            empty_bytes = stand.memory_bytes()
            answers += stand.carry_out(Order(tool="hold", calls=SLOTS_HELD, settled=False))
            resident_bytes = answers[-1].resident_bytes
            answers += stand.carry_out(order)
            of_redis, of_orchestrator = stand.memory_bytes() - empty_bytes, answers[-1].resident_bytes - resident_bytes
            taken.append((of_redis / order.calls, of_orchestrator / order.calls))
            stand.let_go.touch()
            answers += stand.carry_out(Order(tool="nothing", calls=0, collect=True))
            stand.let_go.unlink()
        return sum(answer.seconds for answer in answers), sum(answer.cpu_s for answer in answers)

    point = _measured(stand, axis, at, order.tool, rounds * (order.calls + SLOTS_HELD), work)
    in_redis, in_orchestrator = (statistics.median(each) for each in zip(*taken, strict=True))
    return point.model_copy(
        update={
            "redis_bytes_per_waiting_call": in_redis,
            # What it has taken once it takes again: only the first round tells.
            "orchestrator_bytes_per_waiting_call": in_orchestrator if rounds == 1 else None,
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
