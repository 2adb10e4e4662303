"""`toolfleet versions`: which versions of tools are live, and which share of new runs gets which.

Prints; what may be said, `fleet/versions.py` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from redis.asyncio import Redis
from rich.console import Console

from toolfleet.orchestrator.doors.cli.on_fleet import on_redis
from toolfleet.orchestrator.doors.cli.tables import Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.version_words import COLUMNS, LAST, line_of
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import one_line, plural
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.trials import Trials
from toolfleet.orchestrator.fleet.version_shares import VersionShare, VersionShares
from toolfleet.orchestrator.fleet.versions import FleetVersions, VersionsStanding
from toolfleet.settings import Settings
from toolfleet.wire import Seal

T = TypeVar("T")

app = typer.Typer(
    help="Versions of tools: which are live, and which share of new runs gets a new one.",
    epilog="A run goes on with what it began with. A version that fails far more often than the other is taken back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Tool = Annotated[str, typer.Argument(help="The name of a tool.")]


@app.command("list", epilog="Example: toolfleet versions list --json")
def list_versions(*, as_json: AsJson = False) -> None:
    """List the tools that have versions, and what came of their calls.

    On a terminal as a table; into a pipe one line for each tool, with tabs between the columns: tool, live, new runs,
    share, failed, last word.
    """
    standings = _on_versions(lambda versions: versions.list())
    if as_json:
        print_json([each.model_dump(mode="json") for each in standings])
    elif standings:
        _listed(standings).print(Console(), plural(len(standings), "tool") + " with versions")
    else:
        typer.echo("No tool that a live worker serves has a version.")


@app.command(epilog="Example: toolfleet versions share quote 2 10%")
def share(
    tool: Tool,
    version: Annotated[int, typer.Argument(help="Its version, whose workers may start later.")],
    part: Annotated[str, typer.Argument(metavar="SHARE", help="10% or 0.1.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Give a share of new runs one version of a tool; the others get the highest of the other versions."""
    said = _on_versions(lambda versions: versions.share(tool, version, _part(part), by=who()))
    _tell(said, as_json=as_json)


@app.command(epilog="Example: toolfleet versions abandon quote")
def abandon(tool: Tool, *, as_json: AsJson = False) -> None:
    """Give no new run the version that a share was said of. Runs that began with it go on."""
    _tell(_on_versions(lambda versions: versions.abandon(tool, by=who())), as_json=as_json)


@app.command(epilog="Example: toolfleet versions settle quote")
def settle(tool: Tool) -> None:
    """Say nothing more of a tool's versions: all new runs get the highest."""
    _on_versions(lambda versions: versions.settle(tool))
    typer.echo(one_line(f"{tool}: new runs get the highest version."))


def _part(text: str) -> float:
    number, is_percent = text.removesuffix("%"), text.endswith("%")
    try:
        return float(number) / (100 if is_percent else 1)
    except ValueError:
        raise typer.BadParameter(f"{text[:40]!r} is no share: 10% or 0.1 is") from None


def _on_versions(work: Callable[[FleetVersions], Awaitable[T]]) -> T:
    return on_redis(lambda client, settings: work(_versions(client, settings)))


def _versions(client: Redis, settings: Settings) -> FleetVersions:
    catalog = Catalog(client, settings)
    shares = VersionShares(client, settings.keys, Seal(settings))
    return FleetVersions(catalog, shares, Trials(client, settings.keys, catalog, shares))


def _tell(said: VersionShare, *, as_json: bool) -> None:
    if as_json:
        print_json(said.model_dump(mode="json"))
    else:
        typer.echo(one_line(f"{said.tool}: {said.share * 100:.4g} % of new runs get version {said.version}."))


def _listed(standings: tuple[VersionsStanding, ...]) -> Listing:
    listing = Listing(*COLUMNS, elastic=LAST)
    for each in standings:
        listing.add(*line_of(each))
    return listing
