"""`toolfleet watch`: how the fleet stands, live on a terminal. Asks Redis itself: no server of its own.

Prints and waits for keys; what is told, `status/fleet_standing.py` gathers, and `watch_screen.py` draws.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Final

import typer
from rich.console import Console

from toolfleet.connections import address, connect_async
from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator.doors.cli.full_screen import FullScreen, Room
from toolfleet.orchestrator.doors.cli.on_fleet import on_fleet
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.doors.cli.watch_screen import Seen, frame
from toolfleet.orchestrator.doors.cli.wording import one_line
from toolfleet.orchestrator.status.fleet_standing import FleetView
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings

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
        on_fleet(_document)
    elif as_json:
        on_fleet(lambda settings: _lines(settings, every_s))
    elif once or not Console().is_terminal:
        on_fleet(_print_once)
    else:
        on_fleet(lambda settings: _live(settings, every_s))


@asynccontextmanager
async def _view(settings: Settings) -> AsyncIterator[FleetView]:
    async with aclosing(connect_async(settings)) as client:
        yield FleetView(client, settings)


async def _document(settings: Settings) -> None:
    async with _view(settings) as view:
        print_json((await view.standing()).model_dump(mode="json"))


async def _lines(settings: Settings, every_s: float) -> None:
    async with _view(settings) as view:
        while True:
            try:
                async with asyncio.timeout(ANSWERS_WITHIN_S):
                    told = (await view.standing()).model_dump(mode="json")
            except (TimeoutError, *COMMAND_FAILED) as error:
                told = {"at_unix_s": time.time(), "error": _why(error)}
            print_json(told)
            await asyncio.sleep(every_s)


async def _print_once(settings: Settings) -> None:
    async with _view(settings) as view:
        seen = Seen(_named(settings))
        seen.note(await view.standing())
    console = Console()
    console.print(frame(seen, Room.of(console)), soft_wrap=True)


async def _live(settings: Settings, every_s: float) -> None:
    """Draw until somebody types q, again whenever there is news and whenever the terminal has another size."""
    seen = Seen(_named(settings))
    async with _view(settings) as view:
        with FullScreen() as screen:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(_look(view, seen, screen.news, every_s))
                while not (screen.keys & QUIT):
                    screen.news.clear()
                    screen.show(frame(seen, screen.room))
                    with suppress(TimeoutError):  # what is shown of time goes on
                        await asyncio.wait_for(screen.news.wait(), every_s)
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


def _named(settings: Settings) -> str:
    return f"{address(settings.redis_url)} {settings.namespace}"
