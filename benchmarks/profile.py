"""Where the processor time of a call goes, stage by stage and process by process: `python -m benchmarks.profile`.

py-spy looks at orchestrator and worker from outside, without stopping them; what each has used is read from the
kernel's clock of its process. Redis tells itself what its commands took.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psutil
import typer
import uvloop
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.asking_model import AskingModel
from benchmarks.commands import Counted
from benchmarks.contender import Workload
from benchmarks.contenders.toolfleet_orchestrator import Toolfleet
from benchmarks.figures import Stage as Stands
from benchmarks.launch import pid_of_server, server
from benchmarks.own_figures import run_to_its_end
from benchmarks.processes import ProcessTree, running
from benchmarks.sizes import FULL
from benchmarks.stages import Stage, read_stacks, stages
from toolfleet.garbage import collect_rarely
from toolfleet.orchestrator import Orchestrator

BURST = 2_000
CONVERSATIONS, CALLS_EACH = 100, 20
RUNS, TURNS_EACH = 20, 5
LEAST_US = 0.005
"""Of a call: below it a stage is not worth its line, as a share of all."""
REFUSED = """py-spy could not look at a process: {said}
It needs to be root, or a machine where /proc/sys/kernel/yama/ptrace_scope is 0 (containers: --cap-add SYS_PTRACE)."""


class Scenario(StrEnum):
    """A way in which calls come."""

    LONE = "lone"
    BURST = "burst"
    CONVERSATIONS = "conversations"
    TURNS = "turns"


@dataclass(frozen=True)
class Profile:
    """What was found of one scenario; all of it for each call."""

    scenario: Scenario
    calls: int
    round_trips: float
    cpu_us: dict[str, float]
    stages: dict[str, list[Stage]]
    commands: dict[str, float]
    """How many Redis carries out, those in scripts included."""
    command_us: dict[str, float]
    """What they take by the wall clock; that of a script (`evalsha`) includes those in it."""


# --- the work ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing(Stands):
    """A contender with its worker, and an orchestrator whose model answers at once."""

    runner: Orchestrator = field(kw_only=True)


async def piece(stands: Standing, scenario: Scenario) -> int:
    """Do the scenario's work once; how many calls that were."""
    if scenario is Scenario.TURNS:
        await asyncio.gather(*(run_to_its_end(stands.runner, TURNS_EACH) for _ in range(RUNS)))
        return RUNS * TURNS_EACH
    if scenario is Scenario.LONE:
        await stands.calls(1)
        return 1
    if scenario is Scenario.BURST:
        await stands.calls(BURST)
        return BURST
    await asyncio.gather(*(stands.calls(CALLS_EACH) for _ in range(CONVERSATIONS)))
    return CONVERSATIONS * CALLS_EACH


async def for_so_long(stands: Standing, scenario: Scenario, seconds: float) -> int:
    """Do it again and again; how many calls that were."""
    calls, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        calls += await piece(stands, scenario)
    return calls


@asynccontextmanager
async def standing(folder: Path, url: str) -> AsyncIterator[Standing]:
    """Orchestrators in this process and a worker, warmed up."""
    contender = Toolfleet(url)
    async with AsyncExitStack() as stack:
        workers = stack.enter_context(running(contender.worker(Workload.SHORT), folder / "worker.log"))
        await contender.connect()
        stack.push_async_callback(contender.close)
        model = AskingModel(contender.noop)
        runner = await stack.enter_async_context(Orchestrator(model=model, settings=contender.fleet_settings))
        redis_server = ProcessTree(psutil.Process(pid_of_server(url)))
        stands = Standing(contender, workers, redis_server, FULL, runner=runner)
        for scenario in Scenario:
            await piece(stands, scenario)
        collect_rarely()  # as in the benchmark, and in every service of Toolfleet
        yield stands


# --- looking at it ----------------------------------------------------------------------------------------------------


class PySpy:
    """py-spy at one process, until it is told to stop."""

    def __init__(self, name: str, pid: int, folder: Path, rate: int) -> None:
        self.name = name
        self._stacks, self._said = folder / f"{name}.raw", folder / f"{name}.said"
        options = ("--nonblocking", "--full-filenames", "--format", "raw", "--rate", str(rate))
        with self._said.open("wb") as output:
            self._process = subprocess.Popen(
                (py_spy(), "record", "--pid", str(pid), *options, "--output", str(self._stacks)),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    async def begun(self) -> None:
        """Wait until it looks. Exits with the reason if it may not."""
        while "Sampling process" not in (said := self._said.read_text()):
            if self._process.poll() is not None:
                raise SystemExit(REFUSED.format(said=said.strip()))
            await asyncio.sleep(0.02)

    def stop(self, us_per_call: float) -> list[Stage]:
        """Let it write down what it has seen; that as stages of what a call has cost."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        return stages(read_stacks(self._stacks.read_text()), us_per_call)

    def kill(self) -> None:
        """End it, whatever it is at."""
        self._process.kill()
        self._process.wait()


def py_spy() -> str:
    """Where it is installed. Exits with the remedy if it is not."""
    beside = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if beside is None:
        raise SystemExit("py-spy is not installed: pip install 'toolfleet[bench]'")
    return beside


async def profiled(scenario: Scenario, folder: Path, url: str, *, seconds: float, rate: int) -> Profile:
    """One scenario on a fleet of its own."""
    async with AsyncExitStack() as stack:
        stands = await stack.enter_async_context(standing(folder, url))
        client = await stack.enter_async_context(Redis.from_url(url))
        spies = []
        for name, pid in (("orchestrator", os.getpid()), ("worker", stands.workers.processes()[0].pid)):
            spies.append(PySpy(name, pid, folder, rate))
            stack.callback(spies[-1].kill)
        for spy in spies:
            await spy.begun()
        return await looked_at(stands, scenario, client, spies, seconds)


async def looked_at(
    stands: Standing, scenario: Scenario, client: Redis, spies: Sequence[PySpy], seconds: float
) -> Profile:
    """Do the work while the spies look, and share out what it has cost."""
    counted, spent_us, cpu = await Counted.by(client), await command_us(client), stands.cpu()
    calls = await for_so_long(stands, scenario, seconds)
    used = stands.cpu().per_call_since(cpu, calls, "cpu")
    by_process = {name: used[f"cpu_{name}_us_per_call"] for name in ("orchestrator", "worker", "redis")}
    grown, now_us = (await Counted.by(client)).since(counted), await command_us(client)
    return Profile(
        scenario=scenario,
        calls=calls,
        round_trips=grown.reads / calls,
        cpu_us=by_process,
        stages={spy.name: spy.stop(by_process[spy.name]) for spy in spies},
        commands={name: n / calls for name, n in grown.commands.items()},
        command_us={name: (now_us[name] - spent_us.get(name, 0)) / calls for name in grown.commands},
    )


async def command_us(client: Redis) -> dict[str, int]:
    """Microseconds that Redis has spent in each command so far."""
    stats = await client.info("commandstats")
    return {name.removeprefix("cmdstat_"): said["usec"] for name, said in stats.items()}


# --- telling it -------------------------------------------------------------------------------------------------------


def tables(profile: Profile) -> list[Table]:
    """A profile for people: stages by process, then Redis's commands."""
    title = f"{profile.scenario}: {profile.calls:,} calls, {profile.round_trips:.2f} round trips each"
    found = []
    for process, parts in profile.stages.items():
        whole = profile.cpu_us[process]
        table = Table(title=f"{title}; {process}: {whole:.1f} µs", title_justify="left", min_width=100)
        table.add_column("stage", min_width=40)
        table.add_column("µs per call", justify="right")
        table.add_column("mostly in")
        worth_it = [part for part in parts if part.us_per_call >= LEAST_US * whole]
        for part in worth_it:
            table.add_row(part.name, f"{part.us_per_call:.1f}", part.mostly_in)
        rest = sum(part.us_per_call for part in parts) - sum(part.us_per_call for part in worth_it)
        table.add_row(f"{len(parts) - len(worth_it)} others", f"{rest:.1f}", "")
        found.append(table)
    return [*found, commands_table(profile, title)]


def commands_table(profile: Profile, title: str) -> Table:
    """Redis's commands; one that comes less than once in a hundred calls is left out."""
    whole = f"{title}; Redis: {profile.cpu_us['redis']:.1f} µs"
    table = Table(title=whole, title_justify="left", min_width=100)
    table.add_column("command", min_width=40)
    table.add_column("per call", justify="right")
    table.add_column("µs by the wall clock (a script's: with those in it)", justify="right")
    for name, each in sorted(profile.commands.items(), key=lambda item: -profile.command_us[item[0]]):
        if each >= 0.01:
            table.add_row(name, f"{each:.2f}", f"{profile.command_us[name]:.1f}")
    return table


def main(
    *,
    only: Annotated[list[Scenario] | None, typer.Option(help="A scenario; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long each is looked at.")] = 5.0,
    rate: Annotated[int, typer.Option(min=10, max=1000, help="Looks per second, at each process.")] = 400,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Print what a call costs, by stage and process, and how many commands and round trips it takes.

    lone: one call at a time. burst: 2,000 at once. conversations: 100 at once, 20 calls each. turns: 20 runs at once,
    five turns each, with one call in each turn, of a model that answers at once. A thread that waits for a processor is
    seen as if it ran, so look on a quiet machine.

    Examples: python -m benchmarks.profile   ·   python -m benchmarks.profile --only lone --seconds 20 --json
    """
    py_spy()
    found = []
    for scenario in only or list(Scenario):
        with tempfile.TemporaryDirectory(prefix="profile-") as folder, server(Path(folder)) as url:
            found.append(uvloop.run(profiled(scenario, Path(folder), url, seconds=seconds, rate=rate)))
        if not as_json:
            console = Console(width=max(Console().width, 110))
            console.print(*tables(found[-1]), sep="\n")
    if as_json:
        print(json.dumps({"about": about(quick=False), "profiles": [asdict(profile) for profile in found]}, indent=2))


if __name__ == "__main__":
    typer.run(main)
