"""`toolfleet shards`: how the Redis servers of a fleet stand, and which of them get new runs.

Prints and waits; which shard a run goes to is decided in `toolfleet.orchestrator.shards`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Final

import typer
from rich.console import Console

from toolfleet.connections import connect_async
from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json, warn
from toolfleet.orchestrator.doors.cli.wording import plural
from toolfleet.orchestrator.errors import AllShardsDrain
from toolfleet.orchestrator.shards.standing import ShardStanding, standing_of
from toolfleet.settings import Settings, read_settings
from toolfleet.shard_record import drain as mark, must_be_its_shard_async

app = typer.Typer(
    help="The Redis servers of a fleet that has several: how each stands; keep new runs away from one.",
    epilog="Example: toolfleet shards drain b --wait",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

LOOK_EVERY_S: Final = 0.5

Name = Annotated[str, typer.Argument(metavar="SHARD", help="A shard's name in TOOLFLEET_SHARDS.")]


class NoShards(InvalidSettings):
    """The fleet has one Redis."""


@app.command("list", epilog="Example: toolfleet shards list --json")
def list_shards(*, as_json: AsJson = False) -> None:
    """Show each shard: whether it answers and gets new runs, and what is under way there."""
    standings = asyncio.run(_standings(_settings()))
    if as_json:
        print_json([each.model_dump(mode="json") for each in standings])
        return
    listing = Listing(
        "SHARD", "STATE", "UNFINISHED", "STORED", Column("CALLS"), Column("WORKERS", is_spared=True), elastic="ADDRESS"
    )
    for each in standings:
        numbers = (each.unfinished_runs, each.stored_runs, each.unsettled_calls, each.workers)
        state = "away" if each.why_away else "draining" if each.is_draining else "ready"
        listing.add(each.shard, state, *("-" if number is None else number for number in numbers), each.address)
    listing.print(Console())
    for each in standings:
        if each.why_away:
            warn(f"{each.shard}: {each.why_away}")


@app.command("drain", epilog="Example: toolfleet shards drain b --wait")
def drain(
    shard: Name,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing is under way there.")] = False,
) -> None:
    """Keep new runs away from a shard; those that it has go on there, and what may be resumed stays."""
    settings = _settings()
    left = asyncio.run(_drain(settings, settings.of_shard(shard), wait=wait))
    _tell(left)


@app.command("undrain", epilog="Example: toolfleet shards undrain b")
def undrain(shard: Name) -> None:
    """Let a shard have new runs again."""
    asyncio.run(_mark(_settings().of_shard(shard), is_drained=False))
    typer.echo(f"{shard}: gets new runs")


def _settings() -> Settings:
    settings = read_settings()
    if not settings.all_shards:
        raise NoShards("this fleet has one Redis: TOOLFLEET_SHARDS names several (docs/shards.md)")
    return settings


async def _standings(settings: Settings) -> list[ShardStanding]:
    return list(await asyncio.gather(*(standing_of(settings.of_shard(name)) for name in settings.all_shards.names)))


async def _drain(all_of_them: Settings, settings: Settings, *, wait: bool) -> ShardStanding:
    others = [each for each in await _standings(all_of_them) if each.shard != settings.shard]
    async with aclosing(connect_async(settings)) as client:
        await must_be_its_shard_async(client, settings)
    if all(each.why_away or each.is_draining for each in others):
        raise AllShardsDrain(f"no other shard than {settings.shard} takes new runs now: add one, or undrain one")
    await _mark(settings, is_drained=True)
    left = await standing_of(settings)
    while wait and not left.is_empty:
        await asyncio.sleep(LOOK_EVERY_S)
        left = await standing_of(settings)
    return left


async def _mark(settings: Settings, *, is_drained: bool) -> None:
    async with aclosing(connect_async(settings)) as client:
        await must_be_its_shard_async(client, settings)
        await mark(client, settings, is_drained=is_drained)


def _tell(left: ShardStanding) -> None:
    if left.why_away:
        warn(f"{left.shard}: {left.why_away}")
        return
    typer.echo(
        f"{left.shard}: gets no new runs. Under way there: {plural(left.unfinished_runs or 0, 'run')}, "
        f"{plural(left.unsettled_calls or 0, 'call')}; stored: {plural(left.stored_runs or 0, 'run')}"
    )
