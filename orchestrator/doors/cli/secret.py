"""`toolfleet secret`: who signs with which secret and accepts which, for whoever is about to change it."""

from __future__ import annotations

from functools import partial

import typer
from redis.asyncio import Redis
from rich.console import Console

from toolfleet.membership import next_step
from toolfleet.orchestrator.doors.cli.on_fleet import on_redis
from toolfleet.orchestrator.doors.cli.tables import Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.members import orchestrators
from toolfleet.orchestrator.status.sealed_before import sealed_before
from toolfleet.settings import Settings
from toolfleet.wire import Seal


def secret(*, as_json: AsJson = False) -> None:
    """Show where each process stands in a change of the secret: accept, sign, drop.

    Secrets are shown by short names that say nothing of them. Into a pipe one line for each process, with tabs between
    the columns: process, signs with, accepts besides. Then what is stored under the secret that is only accepted, and
    what the change needs next.
    """
    on_redis(partial(_show, as_json=as_json))


async def _show(client: Redis, settings: Settings, *, as_json: bool) -> None:
    seal = Seal(settings)
    live = await Catalog(client, settings).live()
    members = {**live.proofs, **await orchestrators(client, settings.keys)}
    left = await sealed_before(client, settings)
    known = {name: seal.known_keys(name, proofs) for name, proofs in sorted(members.items())}
    if as_json:
        print_json({"own": seal.key_ids(), "processes": known, "stored": left, "next": next_step(members, seal)})
        return
    listing = Listing("process", "signs with", elastic="accepts besides")
    for name, keys in known.items():
        listing.add(name, next(iter(keys), "-"), ", ".join(keys[1:]) or "-")
    listing.print(Console())
    for kind, count in sorted(left.items()):
        typer.echo(f"stored under {seal.key_ids()[-1]}: {count} {kind}")
    typer.echo(next_step(members, seal))
