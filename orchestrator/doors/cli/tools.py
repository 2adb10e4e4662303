"""`toolfleet tools`: what live workers offer right now."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Annotated, Final

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from toolfleet.catalog import Announcement
from toolfleet.connections import connect_async
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.membership import complaint, strangers
from toolfleet.orchestrator.doors.cli.telling import warn
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.settings import Settings
from toolfleet.wire import Seal

REFRESH_S: Final = 2.0


def tools(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the announcements as JSON.")] = False,
) -> None:
    """Show the tools that live workers announce, and who serves them."""
    with redis_or_embedded() as settings:
        asyncio.run(_show(settings, watch=watch, as_json=as_json))


async def _show(settings: Settings, *, watch: bool, as_json: bool) -> None:
    async with aclosing(connect_async(settings)) as client:
        catalog = Catalog(client, settings)
        workers = await catalog.workers()
        if foreign := strangers({each.worker: each.proofs for each in workers}, Seal(settings)):
            warn(complaint(foreign))
        if as_json:
            sys.stdout.write(
                orjson.dumps([w.model_dump(mode="json", exclude={"proofs"}) for w in workers]).decode() + "\n"
            )
        elif watch:
            await _watch(catalog, workers)
        elif workers:
            Console().print(_table(workers))
        else:
            typer.echo("No worker is live. Start some with `toolfleet up` or `toolfleet worker`.")


async def _watch(catalog: Catalog, workers: list[Announcement]) -> None:
    with Live(_table(workers), console=Console(), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(REFRESH_S)
            live.update(_table(await catalog.workers()), refresh=True)


def _table(workers: list[Announcement]) -> Table:
    table = Table("tool", "queue", "effect", "slow", "workers", "description", title=f"{len(workers)} live workers")
    served: dict[str, list[str]] = {}
    specs = {}
    for worker in workers:
        for spec in worker.tools:
            served.setdefault(spec.name, []).append(worker.worker)
            specs[spec.name] = spec
    for name, spec in sorted(specs.items()):
        first_line = spec.description.partition("\n")[0]
        slow = "yes" if spec.long_running else ""
        table.add_row(name, spec.queue, spec.effect.value, slow, ", ".join(served[name]), first_line)
    return table
