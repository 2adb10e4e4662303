"""`toolfleet orchestrator`: works on runs that nobody works on, until it is told to stop.

Starts, reports and stops an Orchestrator; decides nothing about a run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from toolfleet.connections import address
from toolfleet.errors import OperatorError
from toolfleet.event_loop import run_service
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import redis_or_shards
from toolfleet.local.lifeline import stop_with
from toolfleet.metrics.exposition import serve_metrics
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.choosing_model import chosen_model
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.sessions import open_session
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.shards.sharded import ShardedOrchestrator
from toolfleet.orchestrator.store.leases import Living, living
from toolfleet.settings import Settings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LINE_EVERY_S: Final = 10.0
"""How often a busy orchestrator says what it has done."""

LOOK_EVERY_S: Final = 0.5

KILL_AFTER_S: Final = 10.0
"""Twice as long as handing over may take."""


class NoOrchestrator(OperatorError):
    """No orchestrator on this machine holds a lease."""


def orchestrator(
    *,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say whether one is alive on this machine: exit status 0, otherwise 1."),
    ] = False,
    model: ModelOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Answer Prometheus here: GET /metrics, without a key.")
    ] = None,
    lifeline: Annotated[
        int | None, typer.Option(hidden=True, min=0, help="A file descriptor; it stops when that is closed.")
    ] = None,
) -> None:
    """Work on runs until SIGTERM or Ctrl-C: begun with `toolfleet run --detach`, or left by others.

    Any number may run, on any machine: each run is worked on by one of them.
    When this one stops, or dies, another with the same model goes on with its
    runs; it hands them over within 5 seconds.

    Without --model, OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY
    select the model; without any, a rehearsal model answers, and this says so.
    """
    if lifeline is not None:
        stop_with(lifeline, kill_after_s=KILL_AFTER_S)
    with redis_or_shards(**({} if metrics_port is None else {"metrics_port": metrics_port})) as settings:
        if check:
            typer.echo(asyncio.run(_describe_living(settings)))
        else:
            run_service(_work(settings, Console(quiet=quiet, soft_wrap=True, highlight=False), model))


async def _work(settings: Settings, console: Console, named: str | None) -> None:
    stop = listen_for_stop()
    async with (
        chosen_model(console, named) as model,
        _orchestrator_of(model, settings) as orchestrator,
    ):
        collect_rarely()
        serve_metrics(settings, partial(_collect, orchestrator))
        console.print(f"Redis:         {orchestrator.address}", markup=False)
        console.print(f"orchestrator:  {orchestrator.orchestrator_id}", markup=False)
        console.print("Ready. Ctrl-C hands its runs over and stops.")
        await _report_until(stop, orchestrator, console)
        if orchestrator.working:
            console.print(f"Stopping; {orchestrator.working} runs under way are handed over.")
    console.print("Stopped; every run is stored and goes on elsewhere.")


def _orchestrator_of(model: ChatModel, settings: Settings) -> Orchestrator | ShardedOrchestrator:
    if settings.is_for_all_shards:
        return ShardedOrchestrator(model, settings=settings)
    return Orchestrator(model, settings=settings)


def listen_for_stop() -> asyncio.Event:
    """Return an event that the first signal sets; the second one ends the process as if nobody listened."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def told() -> None:
        stop.set()
        for number in _STOPS:
            loop.remove_signal_handler(number)

    for number in _STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in a script's background jobs
            loop.add_signal_handler(number, told)
    return stop


_STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def _report_until(
    stop: asyncio.Event, orchestrator: Orchestrator | ShardedOrchestrator, console: Console
) -> None:
    """Print a line when there is news, but not more often than LINE_EVERY_S."""
    said = (0, 0, 0)
    said_at = -LINE_EVERY_S
    while not stop.is_set():
        news = (orchestrator.adopted, orchestrator.working, orchestrator.dispatched)
        if news != said and time.monotonic() - said_at >= LINE_EVERY_S:
            said, said_at = news, time.monotonic()
            console.print("{} runs adopted so far, {} worked on now, {} calls dispatched".format(*news))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)


def _collect(orchestrator: Orchestrator | ShardedOrchestrator) -> list[Metric]:
    from toolfleet.metrics.families import process_families, run_families  # noqa: PLC0415  # an extra

    return [
        *process_families(orchestrator.ailing),
        *run_families(
            os.uname().nodename,
            working=orchestrator.working,
            adopted=orchestrator.adopted,
            dispatched=orchestrator.dispatched,
        ),
    ]


async def _describe_living(settings: Settings) -> str:
    shards = settings.of_each_redis
    here = [each for shard in shards for each in await _living_here(shard)]
    if not here:
        where = ", ".join(address(shard.redis_url) for shard in shards)
        raise NoOrchestrator(f"no orchestrator on {socket.gethostname()} holds a lease in Redis at {where}")
    return "\n".join(f"{each.orchestrator_id}: {each.model}" for each in here)


async def _living_here(settings: Settings) -> list[Living]:
    async with open_session(settings) as session:
        return [each for each in await living(session.client, settings) if _is_here(each)]


def _is_here(each: Living) -> bool:
    """Return whether it is a service of this machine: one that adopts runs."""
    return bool(each.model) and each.orchestrator_id.startswith(f"{socket.gethostname()}-")
