"""`toolfleet watch`: how the fleet stands, live on a terminal. Asks Redis itself: no server of its own.

Prints and waits for keys; what is told, `status/fleet_standing.py` gathers, and `watch_screen.py` draws.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from toolfleet.connections import address, connect_async
from toolfleet.errors import StoreUnreachable
from toolfleet.local.finding import running_redis
from toolfleet.orchestrator.doors.cli.full_screen import FullScreen, Room
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.doors.cli.watch_screen import Seen, frame
from toolfleet.orchestrator.doors.cli.wording import one_line
from toolfleet.orchestrator.status.fleet_standing import FleetView
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings, read_settings

EVERY_S: Final = 1.0

ANSWERS_WITHIN_S: Final = 3.0
"""A Redis that says nothing for so long is told of as lost, and asked again."""

QUIT: Final = frozenset("qQ")


def watch(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and leave.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; with --interval one line each time.")
    ] = False,
    interval_s: Annotated[
        float | None, typer.Option("--interval", min=0.2, max=3600, help="Seconds between two frames; 1.")
    ] = None,
) -> None:
    """Show how the fleet stands, live: queues, workers, runs, limits, budgets, and what fails. q or Ctrl-C leaves.

    Where standard output is no terminal, one frame is printed as plain text.
    """
    every_s = interval_s or EVERY_S
    if as_json and (once or interval_s is None):
        _on_running_fleet(_document)
    elif as_json:
        _on_running_fleet(lambda view, _: _lines(view, every_s))
    elif once or not sys.stdout.isatty() or Console().is_dumb_terminal:
        _on_running_fleet(_print_once)
    else:
        _on_running_fleet(lambda view, name: _live(view, name, every_s))


def _on_running_fleet(work: Callable[[FleetView, str], Coroutine[Any, Any, None]]) -> None:
    """Look at the fleet that runs, and start nothing."""

    async def look(settings: Settings) -> None:
        async with aclosing(connect_async(settings)) as client:
            await work(FleetView(client, settings), f"{address(settings.redis_url)} {settings.namespace}")

    with running_redis(read_settings()) as settings:
        asyncio.run(look(settings))


async def _document(view: FleetView, _: str) -> None:
    print_json((await view.standing()).model_dump(mode="json"))


async def _lines(view: FleetView, every_s: float) -> None:
    while True:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                told = (await view.standing()).model_dump(mode="json")
        except (TimeoutError, *COMMAND_FAILED) as error:
            told = {"at_unix_s": time.time(), "error": _why(error)}
        print_json(told)
        await asyncio.sleep(every_s)


async def _print_once(view: FleetView, name: str) -> None:
    seen = Seen(name)
    seen.note(await view.standing())
    console = Console(force_terminal=sys.stdout.isatty())  # FORCE_COLOR makes no terminal of a pipe
    console.print(frame(seen, Room.of(console)), soft_wrap=True)


async def _live(view: FleetView, name: str, every_s: float) -> None:
    """Draw until somebody types q, again whenever there is news and whenever the terminal has another size."""
    seen = Seen(name)
    with FullScreen() as screen:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(_look(view, seen, screen.news, every_s))  # watched: by the group
            while not (screen.keys & QUIT):
                screen.news.clear()
                screen.show(frame(seen, screen.room))
                await screen.news.wait()
            looking.cancel()


async def _look(view: FleetView, seen: Seen, news: asyncio.Event, every_s: float) -> None:
    while True:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                seen.note(await view.standing())
        except (TimeoutError, *COMMAND_FAILED) as error:
            seen.note_lost(_why(error))
        news.set()
        await asyncio.sleep(every_s)


def _why(error: Exception) -> str:
    said = str(error) if isinstance(error, StoreUnreachable) else type(error).__name__
    return f"Redis has not answered for {ANSWERS_WITHIN_S:g} s" if isinstance(error, TimeoutError) else one_line(said)
