"""What a call and a run cost each server, with 1, 2 and 4 of them: `python -m benchmarks.shards`.

All stand on this machine, so its cores, not the servers, say how fast it is in the end. What does not depend on that
is the work of a server for one call: its processor time by the kernel's clock of its process, its commands, those in
scripts included, and its bytes, both as it counts them itself. One server's limit is where that time fills a second.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.asking_model import AskingModel
from benchmarks.cli import terminating
from benchmarks.commands import Counted
from benchmarks.launch import pid_of_server, server
from benchmarks.own_figures import one_call, run_to_its_end
from benchmarks.processes import ProcessTree
from toolfleet.event_loop import run_service
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import ShardedOrchestrator
from toolfleet.settings import Settings, read_settings

TOOLS = "benchmarks.contenders.toolfleet_tools"
BATCH = 500
AT_ONCE = 4
"""Batches under way for each shard."""
RUNS_AT_ONCE = 25
"""For each shard."""
NAMES = "abcdefgh"


@dataclass(frozen=True)
class Seen:
    """What was used up to a moment: seconds of processor time, commands and bytes, of all shards together."""

    wall_s: float
    servers_s: float
    workers_s: float
    orchestrator_s: float
    commands: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Figures:
    """One kind of work on so many shards; all but `per_s` for each piece of it."""

    shards: int
    work: str
    pieces: int
    per_s: float
    server_us: float
    worker_us: float
    orchestrator_us: float
    commands: float
    read_bytes: float
    written_bytes: float

    @property
    def limit_per_s(self) -> float:
        """How many pieces a second fill one core of each server."""
        return self.shards * 1e6 / self.server_us


@dataclass(frozen=True)
class Stage:
    """A fleet of so many shards, warmed up."""

    orchestrator: ShardedOrchestrator
    clients: Sequence[Redis]
    servers: Sequence[ProcessTree]
    workers: Sequence[ProcessTree]

    async def seen(self) -> Seen:
        """Look at every process and ask every server."""
        counted = [await Counted.by(client) for client in self.clients]
        totals = [await client.info("stats") for client in self.clients]
        return Seen(
            wall_s=time.monotonic(),
            servers_s=sum(tree.cpu_s() for tree in self.servers),
            workers_s=sum(tree.cpu_s() for tree in self.workers),
            orchestrator_s=time.process_time(),
            commands=sum(sum(each.commands.values()) for each in counted),
            read_bytes=sum(each["total_net_input_bytes"] for each in totals),
            written_bytes=sum(each["total_net_output_bytes"] for each in totals),
        )

    async def measured(self, work: str, pieces: int, do: Callable[[], Awaitable[None]]) -> Figures:
        """Do the work, which is so many pieces, and say what each took."""
        before = await self.seen()
        await do()
        after = await self.seen()

        def each(name: str) -> float:
            return float((getattr(after, name) - getattr(before, name)) / pieces)

        return Figures(
            shards=len(self.clients),
            work=work,
            pieces=pieces,
            per_s=1 / each("wall_s"),
            server_us=1e6 * each("servers_s"),
            worker_us=1e6 * each("workers_s"),
            orchestrator_us=1e6 * each("orchestrator_s"),
            commands=each("commands"),
            read_bytes=each("read_bytes"),
            written_bytes=each("written_bytes"),
        )

    async def calls(self, number: int) -> None:
        """Make so many calls, in batches that go to the shards in turn."""

        async def one_after_another(batches: int) -> None:
            for _ in range(batches):
                assert len(await self.orchestrator.execute(one_call(BATCH))) == BATCH

        lanes = AT_ONCE * len(self.clients)
        await asyncio.gather(*(one_after_another(number // BATCH // lanes) for _ in range(lanes)))

    async def runs(self, number: int) -> None:
        """Run so many runs of one turn with one call each."""

        async def one_after_another(runs: int) -> None:
            for _ in range(runs):
                await run_to_its_end(self.orchestrator, 1)

        lanes = RUNS_AT_ONCE * len(self.clients)
        await asyncio.gather(*(one_after_another(number // lanes) for _ in range(lanes)))


@contextmanager
def fleet_of(shards: int) -> Iterator[tuple[Settings, list[LocalFleet]]]:
    """So many servers, each with one worker."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        urls = [stack.enter_context(server(directory / name)) for name in NAMES[:shards]]
        settings = read_settings(shards=" ".join(f"{name}={url}" for name, url in zip(NAMES, urls, strict=False)))
        fleets = [
            stack.enter_context(LocalFleet([TOOLS], pools={"io": 1}, redis_url=url, shards=settings.shards, shard=name))
            for name, url in zip(NAMES, urls, strict=False)
        ]
        yield settings, fleets


@asynccontextmanager
async def stage_of(settings: Settings, fleets: Sequence[LocalFleet]) -> AsyncIterator[Stage]:
    """The fleet as it is measured."""
    async with AsyncExitStack() as stack:
        urls = [fleet.settings.redis_url for fleet in fleets]
        clients = [await stack.enter_async_context(Redis.from_url(url)) for url in urls]
        orchestrator = await stack.enter_async_context(ShardedOrchestrator(AskingModel("noop"), settings=settings))
        stage = Stage(
            orchestrator,
            clients,
            [ProcessTree(psutil.Process(pid_of_server(url))) for url in urls],
            [ProcessTree(psutil.Process(worker.pid)) for fleet in fleets for worker in fleet.workers],
        )
        await stage.calls(BATCH * AT_ONCE * len(clients))
        await stage.runs(RUNS_AT_ONCE * len(clients))
        yield stage


def measure(shards: int, *, calls: int, runs: int) -> list[Figures]:
    """Measure a fleet of so many shards."""
    found: list[Figures] = []

    async def both(settings: Settings, fleets: Sequence[LocalFleet]) -> None:
        async with stage_of(settings, fleets) as stage:
            found.append(await stage.measured("call", calls, lambda: stage.calls(calls)))
            found.append(await stage.measured("run", runs, lambda: stage.runs(runs)))

    with fleet_of(shards) as (settings, fleets):
        run_service(both(settings, fleets))
    return found


def shown(found: Sequence[Figures]) -> Table:
    """The figures as a table."""
    columns = ("shards", "work", "/s here", "server µs", "worker µs", "orch. µs", "commands", "bytes in", "bytes out")
    table = Table(*columns, "/s, one core per server")
    for each in sorted(found, key=lambda figures: (figures.work, figures.shards)):
        numbers = (each.per_s, each.server_us, each.worker_us, each.orchestrator_us, each.commands, each.read_bytes)
        more = (each.written_bytes, each.limit_per_s)
        table.add_row(str(each.shards), each.work, *(f"{number:,.0f}" for number in (*numbers, *more)))
    return table


def main(
    *,
    shards: Annotated[list[int] | None, typer.Option(min=1, max=len(NAMES), help="How many; may be repeated.")] = None,
    calls: Annotated[int, typer.Option(help="Calls in batches of 500; a multiple of 16,000.")] = 48_000,
    runs: Annotated[int, typer.Option(help="Runs of one turn with one call; a multiple of 200.")] = 2_000,
    out: Annotated[Path | None, typer.Option(help="A file for the figures as JSON.")] = None,
) -> None:
    """Measure fleets of 1, 2 and 4 shards, one after the other."""
    with terminating():
        found = [figures for each in shards or [1, 2, 4] for figures in measure(each, calls=calls, runs=runs)]
    if out is not None:
        out.write_text(json.dumps([asdict(figures) for figures in found], indent=2) + "\n")
    Console(width=140).print(shown(found))


if __name__ == "__main__":
    typer.run(main)
