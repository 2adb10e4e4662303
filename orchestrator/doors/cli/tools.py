"""`toolfleet tools`: what live workers offer right now."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from toolfleet.catalog import Announcement
from toolfleet.connections import connect_async
from toolfleet.membership import complaint, strangers
from toolfleet.orchestrator.doors.cli.on_fleet import on_fleet
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import print_json, warn
from toolfleet.orchestrator.doors.cli.wording import plural
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.settings import Settings
from toolfleet.wire import Seal

REFRESH_S: Final = 2.0


def tools(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the announcements as JSON.")] = False,
) -> None:
    """Show the tools that live workers announce, and who serves them.

    On a terminal as a table; into a pipe one line for each tool, with tabs between the columns: tool, workers, queue,
    effect, slow, served by, description. Each version of a tool has a line of its own: quote@2.
    """
    on_fleet(lambda settings: _show(settings, watch=watch, as_json=as_json))


async def _show(settings: Settings, *, watch: bool, as_json: bool) -> None:
    async with aclosing(connect_async(settings)) as client:
        catalog = Catalog(client, settings)
        live = await catalog.live()
        workers = live.ours
        if foreign := strangers(live.proofs, Seal(settings)):
            warn(complaint(foreign))
        if as_json:
            print_json([w.model_dump(mode="json", exclude={"proofs"}) for w in workers])
        elif watch:
            await _watch(catalog, workers)
        elif workers:
            _listed(workers).print(Console(), _title(workers))
        elif not foreign:
            typer.echo("No worker is live. Start some with `toolfleet up` or `toolfleet worker`.")


async def _watch(catalog: Catalog, workers: list[Announcement]) -> None:
    console = Console()
    with Live(_screen(workers, console), console=console, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(REFRESH_S)
            live.update(_screen(await catalog.workers(), console), refresh=True)


def _screen(workers: list[Announcement], console: Console) -> Text:
    return Text("\n").join(_listed(workers).lines(console.width, _title(workers)))


def _title(workers: list[Announcement]) -> str:
    return plural(len(workers), "live worker")


def _listed(workers: list[Announcement]) -> Listing:
    served: dict[tuple[str, int], list[str]] = {}
    specs = {}
    for worker in workers:
        for spec in worker.tools:
            named = spec.name, spec.version
            served.setdefault(named, []).append(worker.worker)
            specs[named] = spec
    listing = Listing(
        *("tool", "workers", "queue", "effect", Column("slow", True), Column("served by", True)), elastic="description"
    )
    for named, spec in sorted(specs.items()):
        first_line = spec.description.partition("\n")[0]
        name = f"{spec.name}@{spec.version}" if spec.version else spec.name
        slow = "yes" if spec.long_running else "if asked" if spec.background else ""
        by = ", ".join(served[named])
        listing.add(name, len(served[named]), spec.queue, spec.effect.value, slow, by, first_line)
    return listing
