"""`toolfleet limits`: what tools may not exceed, as declared and as people say while the fleet runs.

Prints; what may be said, `fleet/limits.py` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from toolfleet.orchestrator.doors.cli.limit_words import declared, in_words, share_in_words
from toolfleet.orchestrator.doors.cli.on_fleet import on_redis
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.limits import (
    MAX_PAUSE_S,
    FleetLimits,
    LimitsStanding,
    Override,
    Share,
)

T = TypeVar("T")

app = typer.Typer(
    help="How often and how many at once tools may start, and tenants' shares: look, change, pause.",
    epilog="What is said holds within a second, for what waits already too, until `reset`; `audit` tells who said it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Tool = Annotated[str, typer.Argument(help="The name of a tool that declares a limit.")]
Key = Annotated[
    str, typer.Option("--key", help='The limit of one key alone, as `list` names keys: "tenant=acme". Without, of all.')
]


@app.command("list", epilog="Example: toolfleet limits list --json")
def list_limits(*, as_json: AsJson = False) -> None:
    """List the limits that tools declare, what people have said otherwise, and tenants' shares.

    On a terminal as a table; into a pipe one line for each, with tabs between the columns: tool or tenant, key,
    declared, said, by, when.
    """
    standing = _on_limits(lambda limits: limits.list())
    if as_json:
        print_json(standing.model_dump(mode="json"))
    elif standing.tools or standing.tenants:
        _listed(standing).print(Console(), plural(len(standing.tools), "tool") + " with limits")
    else:
        typer.echo("No tool that a live worker serves declares a limit.")


@app.command(
    "set",
    epilog="Examples: toolfleet limits set search --rate 20/s --burst 5   ·   "
    "toolfleet limits set search --key tenant=acme --concurrency 2",
)
def set_limit(
    tool: Tool,
    *,
    key: Key = "",
    rate: Annotated[str | None, typer.Option(help="Starts in a time: 10/s, 600/min, 5/h, 100/day.")] = None,
    burst: Annotated[int | None, typer.Option(help="How many of them at once.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Calls at once between their start and their end.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let other numbers hold than a tool declares. What is not named stays as it is."""
    said = _on_limits(
        lambda limits: limits.set(tool, key=key, rate=rate, burst=burst, concurrency=concurrency, by=who())
    )
    _tell(tool, key, said, as_json=as_json)


@app.command(
    epilog="Examples: toolfleet limits pause search --for 60   ·   toolfleet limits pause search --key tenant=a"
)
def pause(
    tool: Tool,
    *,
    key: Key = "",
    for_s: Annotated[
        float | None, typer.Option("--for", min=0.001, max=MAX_PAUSE_S, help="Seconds; without, until `resume`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let no call of a tool start. What runs goes on, what waits keeps its place and its deadline."""
    said = _on_limits(lambda limits: limits.pause(tool, key=key, for_s=for_s, by=who()))
    _tell(tool, key, said, as_json=as_json)


@app.command(epilog="Example: toolfleet limits resume search")
def resume(tool: Tool, *, key: Key = "", as_json: AsJson = False) -> None:
    """Let calls of a paused tool start again."""
    said = _on_limits(lambda limits: limits.resume(tool, key=key, by=who()))
    _tell(tool, key, said, as_json=as_json)


@app.command(epilog="Examples: toolfleet limits reset search   ·   toolfleet limits reset --tenant acme")
def reset(
    tool: Annotated[str, typer.Argument(help="The name of a tool.")] = "",
    *,
    key: Key = "",
    tenant: Annotated[str, typer.Option(help="A tenant instead, whose share is as everybody's again.")] = "",
) -> None:
    """Let hold again what a tool declares."""
    if bool(tool) == bool(tenant) or (key and tenant):
        raise typer.BadParameter("name a tool, perhaps with --key, or --tenant: one of the two")
    if tenant:
        _on_limits(lambda limits: limits.reset_tenant(tenant, by=who()))
        typer.echo(one_line(f"Tenant {tenant} has the share that everybody has."))
    else:
        _on_limits(lambda limits: limits.reset(tool, key=key, by=who()))
        typer.echo(one_line(f"{tool}{f' for {key}' if key else ''}: what is declared holds again."))


@app.command(epilog="Example: toolfleet limits tenant acme --weight 3 --guaranteed 2 --ceiling 10")
def tenant(
    name: Annotated[str, typer.Argument(help="A tenant, as keys name it.")],
    *,
    weight: Annotated[float | None, typer.Option(help="Its turns against 1 of the others'.")] = None,
    guaranteed: Annotated[int | None, typer.Option(help="Calls at once that it has before others.")] = None,
    ceiling: Annotated[int | None, typer.Option(help="Calls at once that it has at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a tenant's share of the queues is. What is not named stays as it is."""
    said = _on_limits(
        lambda limits: limits.set_tenant(name, weight=weight, guaranteed=guaranteed, ceiling=ceiling, by=who())
    )
    if as_json:
        print_json(said.model_dump(mode="json"))
    else:
        typer.echo(one_line(f"Tenant {name}: {share_in_words(said)}"))


@app.command(epilog="Example: toolfleet limits audit --limit 10")
def audit(
    *, limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50, as_json: AsJson = False
) -> None:
    """List who has changed what, newest first.

    On a terminal as a table; into a pipe one line for each change, with tabs between the columns: when, by, what, of,
    before, after.
    """
    entries = _on_limits(lambda limits: limits.audit(limit))
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
        return
    listing = Listing("when (UTC)", "by", "what", "of", "before", elastic="after")
    for entry in entries:
        before, after = _numbers(entry.before), _numbers(entry.after)
        listing.add(moment(entry.at_unix_s), entry.by, entry.action, entry.of, before, after)
    listing.print(Console(), plural(len(entries), "change"))


def _on_limits(work: Callable[[FleetLimits], Awaitable[T]]) -> T:
    return on_redis(lambda client, settings: work(FleetLimits(client, settings.keys, Catalog(client, settings))))


def _tell(tool: str, key: str, said: Override, *, as_json: bool) -> None:
    if as_json:
        print_json(said.model_dump(mode="json"))
    else:
        typer.echo(one_line(f"{tool}{f' for {key}' if key else ''}: {in_words(said) or 'as it is declared'}"))


def _listed(standing: LimitsStanding) -> Listing:
    listing = Listing(
        "tool or tenant", Column("key", True), "declared", "said", Column("by", True), elastic="when (UTC)"
    )
    for each in standing.tools:
        for key, said in [("", each.override or Override()), *each.keys.items()]:
            listing.add(
                each.tool, key, "" if key else declared(each), in_words(said, standing.now_ms), said.by, _when(said)
            )
    for name, share in standing.tenants.items():
        listing.add(f"tenant {name}", "", "", share_in_words(share), share.by, _when(share))
    return listing


def _when(said: Override | Share) -> str:
    return moment(said.at_unix_s) if said.at_unix_s else ""


def _numbers(said: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in said.items() if name not in {"by", "at_unix_s"}) or "-"
