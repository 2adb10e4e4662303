"""`toolfleet up`: everything on this machine until Ctrl-C."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Annotated, Final

import typer
from rich.console import Console

from orchestrator.cli.flower import DEFAULT_PORT
from orchestrator.cli.running_flower import RunningFlower, door_at, running_flower
from toolfleet.connections import address
from toolfleet.local import LocalFleet, redis_or_embedded
from toolfleet.supervisor import Supervisor

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
    with_flower: Annotated[bool, typer.Option("--flower/--no-flower", help="Celery's web monitor.")] = True,
    flower_port: Annotated[int, typer.Option(min=1, max=65535)] = DEFAULT_PORT,
) -> None:
    """Run the server, the workers and Flower on this machine until Ctrl-C.

    Queues and results are kept between two runs; a worker that dies is started again. In another terminal,
    `toolfleet run "…"` uses this fleet. Ctrl-C lets running calls end first, a second one stops at once.
    """
    console = Console(soft_wrap=True, highlight=False)
    door = door_at("127.0.0.1", flower_port, remedy="choose another --flower-port") if with_flower else None
    with ExitStack() as stack:
        settings = stack.enter_context(redis_or_embedded())
        flower = stack.enter_context(running_flower(door, settings)) if door else None
        fleet = LocalFleet(
            tools or EXAMPLES,
            pools={"io": io, "cpu": cpu, "long": long},
            redis_url=settings.redis_url,
            worker_options=["--events"] if flower else [],
            # Told no address, a worker joins the embedded server by itself, which then stays until the worker has
            # handed back its calls, even if this process is killed.
            environment={} if os.environ.get(REDIS_VARIABLE) else {REDIS_VARIABLE: ""},
        )
        with console.status("starting workers …"):
            stack.enter_context(fleet)
            if flower:
                flower.wait_until_it_listens()
        _describe(fleet, flower, console)
        if not tools:
            console.print('Try, in another terminal: toolfleet run "What is the square root of 475695037565?"')
        stack.callback(console.print, "Stopping; running calls may end first. Ctrl-C again stops at once.")
        _supervise(fleet, flower, console)


def _describe(fleet: LocalFleet, flower: RunningFlower | None, console: Console) -> None:
    console.print(f"Redis:   {address(fleet.settings.redis_url)}")
    for worker in fleet.workers:
        console.print(f"worker:  {worker.name} (pid {worker.pid})")
    if flower:
        console.print(f"Flower:  {flower.door}")
    console.print("\nReady. Ctrl-C stops everything.")


def _supervise(fleet: LocalFleet, flower: RunningFlower | None, console: Console) -> None:
    """Keep the workers alive. Ends by Ctrl-C, or by the error of what cannot be kept alive."""
    supervisor = Supervisor(fleet)
    while True:
        ended, started = supervisor.look()
        for worker in ended:
            console.print(f"{worker.ending()}\nIt will be started again.", markup=False)
        for worker in started:
            console.print(f"worker:  {worker.name} (pid {worker.pid}), started again")
        if flower:
            flower.check()
        time.sleep(LOOK_EVERY_S)
