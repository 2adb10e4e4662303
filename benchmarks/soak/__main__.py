"""`python -m benchmarks.soak`: see the package."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.launch import server
from benchmarks.soak.fleet import ORCHESTRATOR, WORKER, Process
from benchmarks.soak.ledger import LEDGER, Reader, Verdict
from benchmarks.soak.orchestrating import MODEL
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings

CALLS_EACH = 20
OPEN_RUNS = 100
LOOK_EVERY_S = 0.25
SAMPLE_EVERY_S = 10.0
RECORDS = frozenset({"run", "head", "calls"})
"""The kinds of keys that are of one run."""

GONE_WITHIN_S = 60.0
"""Beyond twice the time that records are kept, what is still there stays."""

STUCK_S = 180.0
"""Without a single answer for so long, something is lost, and the soak ends."""

console = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Sample:
    """What is held at one moment: by each process that lives through all of it, and by the server."""

    at_s: float
    calls: int
    mib: dict[str, float]
    descriptors: dict[str, float]
    redis_mib: float
    keys: int


@dataclass(frozen=True)
class Finding:
    """What came of it."""

    calls: int
    kills: int
    seconds: float
    verdict: Verdict
    keys_left: dict[str, int]
    """What is still in Redis when the records of all runs are gone, by kind. Claims outlive their calls on purpose."""
    samples: list[Sample]


class Soak:
    """One soak."""

    def __init__(self, settings: Settings, client: Redis, processes: dict[str, Process], ledger: Path) -> None:
        self._settings = settings
        self._client = client
        self._processes = processes
        self._reader = Reader(ledger)
        self._began = time.monotonic()
        self._samples: list[Sample] = []
        self._kills = 0

    async def measure(self, runs: int, kill_every_s: float) -> Finding:
        """Have so many runs done, then wait until their records are gone."""
        victims = itertools.cycle([process for name, process in self._processes.items() if name.endswith("-killed")])
        async with Orchestrator(settings=self._settings) as orchestrator:
            await self._until_workers_have_announced_their_tools()
            numbers, next_kill, next_sample = iter(range(runs)), self._now() + kill_every_s, 0.0
            begun, last_answered, answered_at = 0, 0, self._now()
            while len(self._reader.answered) < runs and self._now() - answered_at < STUCK_S:
                for number in itertools.islice(numbers, OPEN_RUNS - (begun - len(self._reader.answered))):
                    await orchestrator.submit(f"{number} {CALLS_EACH}", model=MODEL)
                    begun += 1
                await asyncio.sleep(LOOK_EVERY_S)
                self._reader.read_on()
                if len(self._reader.answered) > last_answered:
                    last_answered, answered_at = len(self._reader.answered), self._now()
                if self._now() > next_kill:
                    await asyncio.to_thread(next(victims).replace)
                    self._kills += 1
                    next_kill = self._now() + kill_every_s
                if self._now() > next_sample:
                    await self._sample()
                    next_sample = self._now() + SAMPLE_EVERY_S
                self._look_for_the_dead()
        seconds = self._now()
        await self._until_records_are_gone()
        verdict = self._reader.verdict(runs, CALLS_EACH)
        return Finding(runs * CALLS_EACH, self._kills, seconds, verdict, await self._keys_left(), self._samples)

    async def _until_workers_have_announced_their_tools(self) -> None:
        workers = sum(name.startswith("worker-") for name in self._processes)
        while await self._client.zcard(self._settings.keys.workers()) < workers:
            self._look_for_the_dead()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _keys_left(self) -> dict[str, int]:
        prefix = self._settings.keys.namespace + ":"
        kinds: Counter[str] = Counter()
        async for key in self._client.scan_iter(count=1000):
            kinds[key.decode(errors="replace").removeprefix(prefix).partition(":")[0]] += 1
        return dict(kinds.most_common())

    async def _until_records_are_gone(self) -> None:
        until = self._now() + 2 * self._settings.keep_done_s + GONE_WITHIN_S
        while self._now() < until:
            await asyncio.sleep(min(SAMPLE_EVERY_S, self._settings.keep_done_s))
            await self._sample()
            if not (await self._keys_left()).keys() & RECORDS:
                return

    async def _sample(self) -> None:
        lasting = {name: each.holds() for name, each in self._processes.items() if name.endswith("-lasting")}
        memory = await self._client.info("memory")
        sample = Sample(
            at_s=self._now(),
            calls=len(self._reader.answered) * CALLS_EACH,
            mib={name: held["mib"] for name, held in lasting.items()},
            descriptors={name: held["descriptors"] for name, held in lasting.items()},
            redis_mib=memory["used_memory"] / 2**20,
            keys=await self._client.dbsize(),
        )
        self._samples.append(sample)
        held = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in sample.mib.items())
        console.print(
            f"{sample.at_s:6.0f} s  {sample.calls:>9,} calls  {self._kills} kills  {held}, "
            f"Redis {sample.redis_mib:.1f} MiB, {sample.keys:,} keys"
        )

    def _look_for_the_dead(self) -> None:
        for process in self._processes.values():
            if process.has_died():
                raise typer.BadParameter(f"{process.name} ended by itself; it said: {process.last_words()}")

    def _now(self) -> float:
        return time.monotonic() - self._began


@contextmanager
def fleet(folder: Path, keep_s: float) -> Iterator[tuple[Settings, dict[str, Process], Path]]:
    """A server, two workers and two orchestrators; afterwards nothing is left."""
    with ExitStack() as stack:
        ledger = folder / "ledger"
        settings = Settings(
            redis_url=stack.enter_context(server(folder)),
            secret="not-a-secret-only-a-benchmark",
            keep_done_s=keep_s,
            keep_failed_s=keep_s,
        )
        environment = {**settings.as_environment(), LEDGER: str(ledger)}
        processes = {}
        for name, argv in (("worker", WORKER), ("orchestrator", ORCHESTRATOR)):
            for fate in ("lasting", "killed"):
                process = Process(f"{name}-{fate}", argv, environment, folder)
                stack.callback(process.end)
                processes[process.name] = process
        yield settings, processes, ledger


async def soaked(settings: Settings, processes: dict[str, Process], ledger: Path, runs: int, every_s: float) -> Finding:
    """Soak a fleet that stands."""
    async with Redis.from_url(settings.redis_url) as client:
        return await Soak(settings, client, processes, ledger).measure(runs, every_s)


def table(finding: Finding) -> Table:
    """What is held at the beginning, in the middle and at the end."""
    told = Table(title=f"{finding.calls:,} calls, {finding.kills} kills, {finding.seconds:.0f} s", title_justify="left")
    samples = finding.samples
    chosen = {"first": samples[0], "a tenth": samples[len(samples) // 10], "half": samples[len(samples) // 2]}
    chosen["last"] = samples[-1]
    for column in ("", *chosen):
        told.add_column(column, justify="right" if column else "left")
    for name in samples[0].mib:
        told.add_row(f"{name}, MiB", *(f"{sample.mib[name]:.1f}" for sample in chosen.values()))
        told.add_row(f"{name}, descriptors", *(f"{sample.descriptors[name]:.0f}" for sample in chosen.values()))
    told.add_row("Redis, MiB", *(f"{sample.redis_mib:.1f}" for sample in chosen.values()))
    told.add_row("Redis, keys", *(f"{sample.keys:,}" for sample in chosen.values()))
    return told


def main(
    *,
    calls: Annotated[int, typer.Option(min=CALLS_EACH, help="How many calls.")] = 1_000_000,
    kill_every_s: Annotated[float, typer.Option(min=1, help="One process is killed every so many seconds.")] = 10.0,
    keep_s: Annotated[float, typer.Option(min=1, help="How long records of ended runs are kept.")] = 30.0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write all samples to this file, too.")] = None,
) -> None:
    """Keep a fleet at work while its processes are killed, and say what was lost, repeated, mispaired, or never freed.

    A million calls take about ten minutes on two cores. The last line is
    `calls=N lost=N duplicated=N mispaired=N in_doubt=N`; the exit status is 1 if anything was lost, duplicated or
    mispaired.

    Examples: python -m benchmarks.soak   ·   python -m benchmarks.soak --calls 20000 --kill-every-s 3
    """
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        fleet(Path(folder), keep_s) as (settings, processes, ledger),
    ):
        finding = uvloop.run(soaked(settings, processes, ledger, calls // CALLS_EACH, kill_every_s))
    Console(width=None if sys.stdout.isatty() else 130).print(table(finding), "Keys left:", finding.keys_left)
    if as_json:
        as_json.write_text(json.dumps({"about": about(quick=False), **asdict(finding)}, indent=2) + "\n")
    verdict = finding.verdict
    print(
        f"calls={finding.calls} lost={verdict.lost} duplicated={verdict.duplicated} mispaired={verdict.mispaired} "
        f"in_doubt={verdict.in_doubt}"
    )
    raise typer.Exit(0 if verdict.is_clean else 1)


if __name__ == "__main__":
    typer.run(main)
