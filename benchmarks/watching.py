"""What it costs workers that many people have the page open: `python -m benchmarks.watching`.

Runs go on, each watched by somebody, and the overview by everybody; then as many go on unseen. Server, worker,
orchestrator, API and viewers are processes of their own; what is compared is the processor time of the worker for each
call, in pairs that follow one another, each of the two first every other time. The runs are stored first, and nobody
works on them until all who look on see theirs: opening five hundred pages is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import psutil
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.contender import Command
from benchmarks.http_door import free_port, process
from benchmarks.launch import pid_of_server, server
from benchmarks.processes import ProcessTree, running
from benchmarks.soak.fleet import ORCHESTRATOR, WORKER
from benchmarks.soak.ledger import LEDGER, Reader
from benchmarks.soak.orchestrating import MODEL
from benchmarks.soak.soak_tools import TAKES
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings

RUNS, VIEWERS, CALLS_EACH, PAIRS = 500, 50, 20, 3
TAKES_S = 2.0
WARM_UP_RUNS = 50
LOOK_EVERY_S = 0.05
STUCK_S = 300.0
WIDE = {"api_requests_per_s": 1e6, "api_requests": 10_000, "api_listeners": 10_000, "api_running_runs": 10_000}


@dataclass(frozen=True)
class Half:
    """What a number of runs cost, for each of their calls."""

    is_watched: bool
    calls: int
    seconds: float
    worker_us: float
    redis_us: float
    api_us: float
    streams: int
    """Live streams that were open, and that told of something."""


@dataclass(frozen=True)
class Finding:
    """All halves, and what watching adds to a worker's part of a call."""

    runs: int
    viewers: int
    halves: list[Half]
    worker_over_unwatched: float


async def view(url: str, run_ids: Sequence[str], viewers: int) -> None:
    """Have the overview open in each of so many tabs, and each run in one, until told to stop.

    Says when all of them show something, and at the end how many have told of something new since.
    """
    showing, heard = 0, 0
    everything = asyncio.Event()

    async def look(client: httpx.AsyncClient, page: str, news: str) -> None:
        nonlocal showing, heard
        (await client.get(page)).raise_for_status()
        async with client.stream("GET", news) as stream:
            stream.raise_for_status()
            told = 0
            async for _ in stream.aiter_bytes():
                told += 1
                showing, heard = showing + (told == 1), heard + (told == 2)
                if showing == viewers + len(run_ids):
                    everything.set()

    pool = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=pool) as client, asyncio.TaskGroup() as tabs:
        tasks = [tabs.create_task(look(client, "/", "/overview/live")) for _ in range(viewers)]
        tasks += [tabs.create_task(look(client, f"/runs/{run_id}", f"/runs/{run_id}/live")) for run_id in run_ids]
        await everything.wait()
        print("open", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for task in tasks:
            task.cancel()
    print(heard, flush=True)


class Bench:
    """A fleet that stands, but for its orchestrator, which `orchestrating` begins and ends."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        trees: dict[str, ProcessTree],
        ledger: Reader,
        orchestrating: Callable[[], AbstractContextManager[ProcessTree]],
    ) -> None:
        self._url, self._settings, self._trees, self._ledger = url, settings, trees, ledger
        self._orchestrating = orchestrating
        self._begun = 0

    async def half(self, runs: int, viewers: int) -> Half:
        """Have so many runs done, watched if there are viewers."""
        async with Orchestrator(settings=self._settings) as orchestrator:
            numbers = range(self._begun, self._begun + runs)
            run_ids = [await orchestrator.submit(f"{number} {CALLS_EACH}", model=MODEL) for number in numbers]
        self._begun += runs
        watching = await self._watching(run_ids, viewers) if viewers else None
        used_s = {name: tree.cpu_s() for name, tree in self._trees.items()}
        began = time.perf_counter()
        with self._orchestrating():
            while len(self._ledger.answered) < self._begun:
                if time.perf_counter() - began > STUCK_S:
                    raise TimeoutError(f"{self._begun - len(self._ledger.answered)} runs were not answered")
                await asyncio.sleep(LOOK_EVERY_S)
                self._ledger.read_on()
            seconds, calls = time.perf_counter() - began, runs * CALLS_EACH
        spent = {name: (tree.cpu_s() - used_s[name]) / calls * 1e6 for name, tree in self._trees.items()}
        streams = int((await watching.communicate(b"\n"))[0]) if watching else 0
        return Half(bool(viewers), calls, seconds, spent["worker"], spent["redis"], spent["api"], streams)

    async def _watching(self, run_ids: Sequence[str], viewers: int) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        order = json.dumps({"url": self._url, "run_ids": run_ids, "viewers": viewers})
        command = (sys.executable, "-m", "benchmarks.watching", "--as-viewers")
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdin
        assert process.stdout
        process.stdin.write(order.encode() + b"\n")
        await process.stdin.drain()
        async with asyncio.timeout(STUCK_S):
            if not await process.stdout.readline():
                raise RuntimeError("those who look on have given up: see above")
        return process


async def measured(bench: Bench, runs: int, viewers: int, pairs: int) -> Finding:
    """All pairs, behind a warm-up."""
    await bench.half(WARM_UP_RUNS, 0)
    halves: list[Half] = []
    for number in range(pairs):
        order = (0, viewers) if number % 2 else (viewers, 0)
        halves += [await bench.half(runs, each) for each in order]
    two = [sorted(halves[at : at + 2], key=lambda half: half.is_watched) for at in range(0, len(halves), 2)]
    ratio = statistics.median(watched.worker_us / unseen.worker_us for unseen, watched in two)
    return Finding(runs, viewers, halves, ratio)


def table(finding: Finding) -> Table:
    """The finding, for people."""
    dearer = f"a worker's part of a call is {finding.worker_over_unwatched:.2f} of that unseen"
    told = Table(title=f"{finding.runs} runs, {finding.viewers} people: {dearer}", title_justify="left")
    for column in ("watched", "calls", "s", "worker, µs a call", "Redis, µs", "API, µs", "streams that told"):
        told.add_column(column, justify="right")
    for half in finding.halves:
        figures = (half.seconds, half.worker_us, half.redis_us, half.api_us)
        watched = "yes" if half.is_watched else "no"
        told.add_row(watched, f"{half.calls:,}", *(f"{x:.1f}" for x in figures), f"{half.streams}")
    return told


def main(
    *,
    runs: Annotated[int, typer.Option(min=1, help="Runs that go on at a time, each watched by somebody.")] = RUNS,
    viewers: Annotated[int, typer.Option(min=1, help="People who have the overview open.")] = VIEWERS,
    pairs: Annotated[int, typer.Option(min=1, help="How often both are measured.")] = PAIRS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    as_viewers: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Measure what people who look on cost the workers.

    Examples: python -m benchmarks.watching   ·   python -m benchmarks.watching --runs 50 --viewers 5 --pairs 1 --json
    """
    if as_viewers:
        with suppress(KeyboardInterrupt):
            uvloop.run(view(**json.loads(sys.stdin.readline())))
        return
    with tempfile.TemporaryDirectory(prefix="watching-") as folder, ExitStack() as stack:
        finding = _on_a_fleet(Path(folder), stack, runs, viewers, pairs)
    if as_json:
        print(json.dumps({"about": about(quick=False), **asdict(finding)}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(table(finding))


def _on_a_fleet(folder: Path, stack: ExitStack, runs: int, viewers: int, pairs: int) -> Finding:
    url, ledger, port = stack.enter_context(server(folder)), folder / "ledger", free_port()
    settings = Settings(redis_url=url, secret="not-a-secret-only-a-benchmark", **WIDE)  # type: ignore[arg-type]  # of several types
    environment = {**settings.as_environment(), LEDGER: str(ledger), TAKES: str(TAKES_S)}
    worker = Command((*WORKER, "--concurrency", "1000"), environment)
    trees = {"worker": stack.enter_context(running(worker, folder / "worker.log"))}
    serve = (sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "serve", "--insecure", "--port", str(port))
    page = stack.enter_context(process(*serve, port=port, **environment))
    trees["redis"] = ProcessTree(psutil.Process(pid_of_server(url)))
    # Our own attempt to connect stands in the same list, with the port on its side at times.
    taken = [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port]
    listening = [each.pid for each in taken if each.status == psutil.CONN_LISTEN]
    trees["api"] = ProcessTree(psutil.Process(listening[0]))

    def orchestrating() -> AbstractContextManager[ProcessTree]:
        return running(Command(ORCHESTRATOR, environment), folder / "orchestrator.log")

    bench = Bench(page, settings, trees, Reader(ledger), orchestrating)
    finding: Finding = uvloop.run(measured(bench, runs, viewers, pairs))
    return finding


if __name__ == "__main__":
    typer.run(main)
