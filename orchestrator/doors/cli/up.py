"""`toolfleet up`: everything on this machine until Ctrl-C, once; a second one joins the first, or takes its place."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.prompt import Prompt

from toolfleet.errors import OperatorError
from toolfleet.exit_status import ExitStatus
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.orchestrator.doors.cli import flower, running_api
from toolfleet.orchestrator.doors.cli.choosing_model import name_of_model
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.running_all import Plan, run_all, run_workers
from toolfleet.orchestrator.doors.cli.running_fleet import FleetLock
from toolfleet.orchestrator.errors import FleetRunsAlready
from toolfleet.settings import Settings
from toolfleet.terminal import harmless

EXAMPLES: Final = ("toolfleet.workers.packs.stdlib", "toolfleet.workers.packs.arithmetic")

"""EX_TEMPFAIL of sysexits.h: the exit status where a fleet runs already and nobody said what to do about it."""

WAYS_OUT: Final = """
  --join             more workers for that fleet
  --replace          ask it to stop in order, wait, and take its place
  --namespace NAME   a fleet of its own beside it, with another --api-port and --flower-port"""


class NothingToJoin(OperatorError):
    """No fleet runs here."""


def up(
    *,
    tools: Annotated[
        list[str] | None, typer.Option("--tools", help="A module with tools to serve; may be given again.")
    ] = None,
    io: Annotated[int, typer.Option(min=0, help="Workers for async tools, 1000 calls at a time each.")] = 1,
    cpu: Annotated[int, typer.Option(min=0, help="Workers for blocking tools, a process for each core each.")] = 1,
    long: Annotated[int, typer.Option(min=0, help="Workers for long-running tools.")] = 1,
    orchestrators: Annotated[int, typer.Option(min=0, help="Processes that work on detached and on left runs.")] = 1,
    model: ModelOption = None,
    with_flower: Annotated[bool, typer.Option("--flower/--no-flower", help="Celery's web monitor.")] = True,
    flower_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = flower.DEFAULT_PORT,
    with_api: Annotated[bool, typer.Option("--api/--no-api", help="The HTTP API, on loopback.")] = True,
    api_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = running_api.DEFAULT_PORT,
    reload: Annotated[
        bool, typer.Option("--reload", help="Exchange the workers when the Python files beside the tools change.")
    ] = False,
    join: Annotated[bool, typer.Option("--join", help="Only more workers for the fleet that runs.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Ask the fleet that runs to stop, wait, and take its place.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(help="A fleet of its own on the same server; otherwise TOOLFLEET_NAMESPACE.")
    ] = None,
) -> None:
    """Run the server, the workers, an orchestrator, the HTTP API and Flower on this machine until Ctrl-C.

    Queues, results and runs are kept between two times; a process that dies is started again. In another terminal,
    `toolfleet run "…"` uses this fleet. Ctrl-C lets running calls end first, a second one stops at once.

    One runs for each namespace of a server. Beside another one it says what runs, and asks on a terminal what to do;
    elsewhere it ends with the exit status 75, unless there is --join, --replace or another --namespace.
    """
    if join and replace:
        raise typer.BadParameter("--join and --replace contradict each other: leave one of them out")
    console = Console(soft_wrap=True, highlight=False)
    plan = Plan(
        tools=tuple(tools or ()),
        pools={"io": io, "cpu": cpu, "long": long},
        orchestrators=orchestrators,
        model=name_of_model(model) if orchestrators or with_api else "",
        named_model=model,
        flower_port=flower_port if with_flower else None,
        api_port=api_port if with_api else None,
        reloads=reload,
    )
    with redis_or_embedded(**({} if namespace is None else {"namespace": namespace})) as settings:
        try:
            _run(plan, settings, console, joins=join, replaces=replace)
        except FleetRunsAlready as error:
            _run_as_answered(plan, settings, console, error)


def _run(plan: Plan, settings: Settings, console: Console, *, joins: bool, replaces: bool) -> None:
    lock = FleetLock(settings)
    if joins:
        if (fleet := lock.record()) is None:
            raise NothingToJoin("no fleet of `toolfleet up` runs here to join: leave out --join")
        run_workers(plan.serving(fleet.tools), settings, console, events=bool(fleet.flower))
        return
    with ExitStack() as stack:
        stack.enter_context(lock.held(replaces=replaces, say=console.print))
        run_all(plan.serving(EXAMPLES), settings, console, lock)


def _run_as_answered(plan: Plan, settings: Settings, console: Console, error: FleetRunsAlready) -> None:
    """Do what the person at the terminal wants, if there is one. Otherwise the command ends."""
    if sys.stdin.isatty() and console.is_terminal:
        console.print(harmless(str(error)), markup=False)
        answer = Prompt.ask("Join it, replace it, or quit?", choices=["join", "replace", "quit"], default="quit")
        if answer != "quit":
            _run(plan, settings, console, joins=answer == "join", replaces=answer == "replace")
        return
    typer.secho(f"toolfleet: {harmless(str(error))}{WAYS_OUT}", err=True, fg="red")
    raise typer.Exit(ExitStatus.RUNS_ALREADY)
