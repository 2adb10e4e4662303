"""`toolfleet up`: everything on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Final

import typer
from rich.console import Console

from orchestrator.cli.conversation import REHEARSAL_NOTE, model_name
from orchestrator.cli.flower import DEFAULT_PORT
from orchestrator.cli.running_api import running_api
from orchestrator.cli.running_flower import RunningFlower, door_at, running_flower
from orchestrator.cli.running_orchestrators import POOL, RunningOrchestrators, running_orchestrators
from orchestrator.models.rehearsal import REHEARSAL_MODEL
from toolfleet.connections import address
from toolfleet.local import LocalFleet, redis_or_embedded
from toolfleet.supervisor import Supervisor
from toolfleet.worker_process import WorkerProcess

LOOK_EVERY_S: Final = 0.5

REDIS_VARIABLE: Final = "TOOLFLEET_REDIS_URL"

EXAMPLES: Final = ["workers.packs.stdlib", "workers.packs.arithmetic"]


def up(
    *,
    tools: Annotated[
        list[str] | None, typer.Option("--tools", help="A module with tools to serve; may be given again.")
    ] = None,
    io: Annotated[int, typer.Option(min=0, help="Workers for async tools, 1000 calls at a time each.")] = 1,
    cpu: Annotated[int, typer.Option(min=0, help="Workers for blocking tools, a process for each core each.")] = 1,
    long: Annotated[int, typer.Option(min=0, help="Workers for long-running tools.")] = 1,
    orchestrators: Annotated[int, typer.Option(min=0, help="Processes that work on detached and on left runs.")] = 1,
    with_flower: Annotated[bool, typer.Option("--flower/--no-flower", help="Celery's web monitor.")] = True,
    flower_port: Annotated[int, typer.Option(min=1, max=65535)] = DEFAULT_PORT,
    with_api: Annotated[bool, typer.Option("--api/--no-api", help="The HTTP API, on loopback.")] = True,
    api_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
) -> None:
    """Run the server, the workers, an orchestrator and Flower on this machine until Ctrl-C.

    Queues, results and runs are kept between two times; a process that dies is started again. In another terminal,
    `toolfleet run "…"` uses this fleet. Ctrl-C lets running calls end first, a second one stops at once.
    """
    console = Console(soft_wrap=True, highlight=False)
    door = door_at("127.0.0.1", flower_port, remedy="choose another --flower-port") if with_flower else None
    with ExitStack() as stack:
        settings = stack.enter_context(redis_or_embedded())
        flower = stack.enter_context(running_flower(door, settings)) if door else None
        # Told no address, a process joins the embedded server by itself, which then stays until that process has
        # handed back its calls or runs, even if this one is killed.
        environment = {} if os.environ.get(REDIS_VARIABLE) else {REDIS_VARIABLE: ""}
        fleet = LocalFleet(
            tools or EXAMPLES,
            pools={"io": io, "cpu": cpu, "long": long},
            redis_url=settings.redis_url,
            worker_options=["--events"] if flower else [],
            environment=environment,
        )
        with console.status("starting workers …"):
            running = stack.enter_context(running_orchestrators(orchestrators, settings, environment))
            stack.enter_context(fleet)
            # Started with the workers, stopped before them: what an orchestrator is at needs workers to end.
            stack.callback(running.stop)
            api = stack.enter_context(running_api(api_port, settings, environment)) if with_api else None
            running.wait_until_ready()
            unserved = fleet.serve_own_queues()
            if api:
                api.wait_until_it_listens()
            if flower:
                flower.wait_until_it_listens()
        _describe(fleet, running, flower, console)
        for queue, names in unserved.items():
            console.print(f"Nobody serves {', '.join(names)}: start again without --{queue} 0.", markup=False)
        if api:
            console.print(f"API:     {api.url}  (OpenAI's clients: {api.url}/v1)", markup=False)
        console.print("\nReady. Ctrl-C stops everything.")
        if not tools:
            console.print('Try, in another terminal: toolfleet run "What is the square root of 475695037565?"')
        stack.callback(console.print, "Stopping; running calls may end first. Ctrl-C again stops at once.")
        supervisors = [Supervisor(fleet), Supervisor(running), *([Supervisor(api)] if api else [])]
        _supervise(supervisors, flower, console)


def _describe(fleet: LocalFleet, running: RunningOrchestrators, flower: RunningFlower | None, console: Console) -> None:
    console.print(f"Redis:   {address(fleet.settings.redis_url)}")
    for worker in fleet.workers:
        console.print(_line(worker))
    for orchestrator in running.workers:
        console.print(_line(orchestrator))
    if running.workers:
        model = asyncio.run(model_name())
        console.print(REHEARSAL_NOTE if model == REHEARSAL_MODEL else f"model:   {model}")
    if flower:
        console.print(f"Flower:  {flower.door}")


def _line(process: WorkerProcess) -> str:
    kind = "orchestrator" if process.pool == POOL else "worker"
    return f"{kind}:  {process.name} (pid {process.pid})"


def _supervise(supervisors: Sequence[Supervisor], flower: RunningFlower | None, console: Console) -> None:
    """Keep the processes alive. Ends by Ctrl-C, or by the error of what cannot be kept alive."""
    while True:
        for supervisor in supervisors:
            ended, started = supervisor.look()
            for process in ended:
                console.print(f"{process.ending()}\nIt will be started again.", markup=False)
            for process in started:
                console.print(f"{_line(process)}, started again")
        if flower:
            flower.check()
        time.sleep(LOOK_EVERY_S)
