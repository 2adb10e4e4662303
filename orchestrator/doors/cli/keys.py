"""`toolfleet keys`: who may use the HTTP API, and for what.

Prints and asks; the keyring decides. A key is shown once, when it is made.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from toolfleet.local.local_key import LocalKey
from toolfleet.orchestrator.doors.cli.keyrings import keyrings_of
from toolfleet.orchestrator.doors.cli.on_fleet import on_all_of_fleet
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural
from toolfleet.orchestrator.doors.http.key_store import MIN_RATE_PER_S, ApiKey, Scope
from toolfleet.settings import Settings

DAY_S = 24 * 3600

SPARED = ("tenant", "subject", "per second", "good until (UTC)", "tools", "made (UTC)")

app = typer.Typer(
    help="Keys for the HTTP API: make one, list them, take one away, print your own.",
    epilog="A revoked key stops working within a second.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@app.command(epilog="Example: toolfleet keys add reporting --tenant acme --scope read --rate 5 --days 90")
def add(
    name: Annotated[str, typer.Argument(help="What it is for; shown in lists.")] = "",
    *,
    tenant: Annotated[str, typer.Option(help="Whose runs and handles it sees; keys without one share theirs.")] = "",
    subject: Annotated[
        str, typer.Option(help="Who asks with it, as tools read it: `ctx.subject`; otherwise the key's id.")
    ] = "",
    scopes: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            help="read: look at where things stand; payloads: at arguments and results, too; run: begin and call, too "
            "(the default); approve: look at all, and decide about calls that wait for a person; work: serve the tools "
            "that --tools names, over HTTPS, and nothing else; admin: everything, metrics too. May be given again.",
        ),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            "--tools",
            help="Tools that it may call, or serve: names or patterns, with commas; may be given again.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=MIN_RATE_PER_S, max=1e6, help="Requests per second; without, TOOLFLEET_API_REQUESTS_PER_S."),
    ] = None,
    days: Annotated[float | None, typer.Option(min=0.0001, max=36_500, help="How long it is good for.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is stored as a digest only: nobody can show it again."""
    named = tuple(tool for words in tools or () for tool in words.replace(" ", "").split(",") if tool)
    if Scope.WORK in (scopes or ()) and not named:
        raise typer.BadParameter("a key of the scope work names its tools: --tools a,b", param_hint="'--tools'")

    async def make(settings: Settings) -> tuple[str, ApiKey]:
        async with keyrings_of(settings) as keyrings:
            return await keyrings.add(
                name,
                tenant=tenant,
                subject=subject,
                scopes=tuple(scopes or (Scope.RUN,)),
                tools=named or ("*",),
                rate_per_s=rate,
                expires_unix_s=None if days is None else time.time() + days * DAY_S,
            )

    key, stored = on_all_of_fleet(make)
    if as_json:
        print_json({"key": key, **stored.model_dump(mode="json")})
        return
    typer.echo(key)
    typer.secho(f"Its id is {stored.key_id}. Keep the key: it is not shown again.", err=True, dim=True)


@app.command("local", epilog='Example: curl -H "authorization: Bearer $(toolfleet keys local)" …')
def print_local() -> None:
    """Print the key of this machine's user, made if there is none yet.

    It is good at every HTTP API that this user serves on this machine, and stands in a file that nobody else can read:
    delete the file, and the key is good for nothing from then on.
    """
    typer.echo(LocalKey().made())


@app.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """List the keys, by their ids: the keys themselves are not stored.

    On a terminal as a table; into a pipe one line for each key, with tabs between the columns: id, scopes, tenant,
    subject, per second, good until, tools, made, name.
    """

    async def read(settings: Settings) -> list[ApiKey]:
        async with keyrings_of(settings) as keyrings:
            return await keyrings.all()

    keys = on_all_of_fleet(read)
    if as_json:
        print_json([key.model_dump(mode="json") for key in keys])
    elif keys:
        _listed(keys).print(Console(), plural(len(keys), "key"))
    else:
        typer.echo("There is no key. Make one: toolfleet keys add")


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The id of a key, or how it begins.")]) -> None:
    """Take a key away. It stops working within a second."""

    async def take_away(settings: Settings) -> ApiKey:
        async with keyrings_of(settings) as keyrings:
            return await keyrings.revoke(key_id)

    key = on_all_of_fleet(take_away)
    typer.echo(one_line(f"Key {key.key_id} {key.name} is revoked."))


@app.command(epilog="Example: toolfleet keys share")
def share() -> None:
    """Give every shard the keys that the others have, and take away everywhere what was revoked on one."""

    async def give(settings: Settings) -> int:
        async with keyrings_of(settings) as keyrings:
            return await keyrings.share()

    typer.echo(f"{plural(on_all_of_fleet(give), 'change')}: every shard has the same keys.")


def _listed(keys: list[ApiKey]) -> Listing:
    listing = Listing(
        "id",
        "scopes",
        *(Column(name, True) for name in SPARED),
        elastic="name",
    )
    for key in keys:
        until = "" if key.expires_unix_s is None else moment(key.expires_unix_s)
        listing.add(
            key.key_id,
            ", ".join(key.scopes),
            key.tenant,
            "" if key.subject == key.key_id else key.subject,
            "" if key.rate_per_s is None else f"{key.rate_per_s:g}",
            f"{until} (expired)" if key.is_expired else until,
            ", ".join(key.tools),
            moment(key.created_unix_s),
            key.name,
        )
    return listing
