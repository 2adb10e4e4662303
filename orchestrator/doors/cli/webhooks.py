"""`toolfleet webhooks`: who is told of what happens to runs, what came of it, and what was given up.

Prints and asks; endpoints and messages are kept by `toolfleet.orchestrator.webhooks`. A secret is shown once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from toolfleet.orchestrator.doors.cli.sessions import Session, look
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural, span
from toolfleet.orchestrator.errors import InvalidWebhook
from toolfleet.orchestrator.webhooks.desk import Webhooks
from toolfleet.orchestrator.webhooks.endpoints import OVERLAP_S
from toolfleet.orchestrator.webhooks.records import (
    SUBSCRIBABLE,
    DeadWebhook,
    Endpoint,
    WebhookAttempt,
    WebhookEvent,
    named_by_events,
)
from toolfleet.wire import Seal

T = TypeVar("T")

app = typer.Typer(
    help="Who is told of what happens to runs: add an endpoint, look at what came of it, send again what was given up.",
    epilog="Example: toolfleet webhooks add https://hooks.example.com/toolfleet --events run.completed,run.failed",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

NAMES = ", ".join(SUBSCRIBABLE)
EndpointId = Annotated[str, typer.Argument(metavar="ID", help="An endpoint's id, as the list has it.")]
Tenant = Annotated[str, typer.Option(help="Whose; nobody's by default.")]


@app.command(epilog="Example: toolfleet webhooks add https://hooks.example.com/toolfleet --tenant acme")
def add(
    url: Annotated[str, typer.Argument(help="Where messages go: https://…")],
    *,
    events: Annotated[
        list[str] | None, typer.Option(help=f"Which, with commas: {NAMES}. All of them by default.")
    ] = None,
    only_named: Annotated[
        bool, typer.Option("--only-named", help="Tell it only of runs that name it (`webhook=`), and of all of that.")
    ] = False,
    content: Annotated[
        bool, typer.Option("--content", help="Also send answers, reasons, arguments, questions, results.")
    ] = False,
    description: Annotated[str, typer.Option(help="What it is for; shown in lists.")] = "",
    tenant: Tenant = "",
    as_json: AsJson = False,
) -> None:
    """Add an endpoint and print its secret. It is hidden from then on: nobody can show it again."""
    if events and only_named:
        raise typer.BadParameter("--events and --only-named contradict each other: leave one of them out")
    wanted = () if only_named else _events(events)

    async def make(webhooks: Webhooks) -> tuple[Endpoint, str]:
        return await webhooks.endpoints.add(
            url, tenant=tenant, events=wanted, content=content, description=description, by=who()
        )

    _tell_secret(*_with_webhooks(make), as_json=as_json)


@app.command("list")
def list_endpoints(*, tenant: Tenant = "", as_json: AsJson = False) -> None:
    """List the endpoints of a tenant, the oldest first."""
    found = _with_webhooks(lambda webhooks: webhooks.endpoints.of_tenant(tenant))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif found:
        listing = Listing("id", Column("state"), Column("events", True), Column("for", True), elastic="url")
        for each in found:
            state = f"disabled: {each.disabled}" if each.disabled else "on"
            listing.add(each.endpoint_id, state, _told(each), each.description, each.url)
        listing.print(Console(), plural(len(found), "endpoint"))
    else:
        typer.echo("There is no endpoint. Add one: toolfleet webhooks add https://…")


@app.command(epilog="Example: toolfleet webhooks show we_5d0c2f6b9a1e4c37")
def show(endpoint_id: EndpointId, *, as_json: AsJson = False) -> None:
    """Show an endpoint, and what came of the newest attempts at it."""

    async def read(webhooks: Webhooks) -> tuple[Endpoint, list[WebhookAttempt]]:
        return await webhooks.endpoints.load(endpoint_id, tenant=None), await webhooks.outbox.attempts(endpoint_id)

    endpoint, attempts = _with_webhooks(read)
    if as_json:
        print_json(_as_json(endpoint) | {"attempts": [each.model_dump(mode="json") for each in attempts]})
        return
    typer.echo(one_line(f"{endpoint.endpoint_id} {endpoint.url}"))
    typer.echo(one_line(f"is told of {_told(endpoint)}{', with what was said' if endpoint.content else ''}"))
    if endpoint.disabled:
        typer.echo(one_line(f"disabled: {endpoint.disabled}"))
    if attempts:
        _attempts(attempts).draw(Console(), f"the newest {plural(len(attempts), 'attempt')}")


@app.command(epilog="Example: toolfleet webhooks remove we_5d0c2f6b9a1e4c37")
def remove(endpoint_id: EndpointId) -> None:
    """Take an endpoint away; what is owed to it is not sent any more."""
    endpoint = _with_webhooks(lambda webhooks: webhooks.endpoints.remove(endpoint_id, tenant=None))
    typer.echo(one_line(f"Endpoint {endpoint.endpoint_id} {endpoint.url} is removed."))


@app.command(epilog="Example: toolfleet webhooks rotate we_5d0c2f6b9a1e4c37 --overlap 3600")
def rotate(
    endpoint_id: EndpointId,
    *,
    overlap: Annotated[
        float, typer.Option(min=0, max=604_800, help="Seconds for which messages are signed with both.")
    ] = OVERLAP_S,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint a new secret, and print it. For a while messages have two signatures, one by each."""
    made = _with_webhooks(lambda webhooks: webhooks.endpoints.rotate(endpoint_id, tenant=None, overlap_s=overlap))
    _tell_secret(*made, as_json=as_json)


@app.command(epilog="Example: toolfleet webhooks enable we_5d0c2f6b9a1e4c37")
def enable(endpoint_id: EndpointId) -> None:
    """Send to an endpoint again that had answered 410 (gone)."""
    endpoint = _with_webhooks(lambda webhooks: webhooks.endpoints.enable(endpoint_id, tenant=None))
    typer.echo(f"Endpoint {endpoint.endpoint_id} is sent to again.")


@app.command("test", epilog="Example: toolfleet webhooks test we_5d0c2f6b9a1e4c37")
def send_test(endpoint_id: EndpointId, *, as_json: AsJson = False) -> None:
    """Send an endpoint a message of the type webhook.test now, once, and say what came of it."""

    async def try_it(webhooks: Webhooks) -> WebhookAttempt:
        return await webhooks.test(await webhooks.endpoints.load(endpoint_id, tenant=None))

    attempt = _with_webhooks(try_it)
    if as_json:
        print_json(attempt.model_dump(mode="json"))
    elif attempt.is_delivered:
        typer.echo(f"Delivered: it answered {attempt.status} after {span(attempt.took_s)}.")
    if not attempt.is_delivered:
        raise InvalidWebhook(one_line(f"not delivered: {attempt.error}{_quoted(attempt.answer)}"))


@app.command(epilog="Example: toolfleet webhooks dead --tenant acme")
def dead(
    *,
    tenant: Tenant = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List messages that were given up, the newest first."""
    found = _with_webhooks(lambda webhooks: webhooks.outbox.dead(tenant, limit))
    if as_json:
        print_json([_dead_as_json(each) for each in found])
    elif found:
        listing = Listing("delivery", "event", "about", "tried", Column("given up (UTC)", True), elastic="why")
        for each in found:
            why = each.last.error if each.last else "its endpoint is disabled"
            owed = each.owed
            listing.add(owed.delivery_id, owed.event, owed.about, each.attempts, moment(each.given_up_unix_s), why)
        listing.print(Console(), plural(len(found), "message"))
    else:
        typer.echo("No message was given up.")


@app.command(epilog="Examples: toolfleet webhooks replay msg_0f….we_5d…   ·   toolfleet webhooks replay --all")
def replay(
    deliveries: Annotated[
        list[str] | None, typer.Argument(metavar="[DELIVERY]...", help="As the list has them.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All of the tenant that were given up.")] = False,
    tenant: Tenant = "",
) -> None:
    """Send messages again that were given up, under the ids that they have."""
    if bool(deliveries) == every:
        raise typer.BadParameter("name what is to be sent again, or say --all")

    async def again(webhooks: Webhooks) -> int:
        named = deliveries or [each.owed.delivery_id for each in await webhooks.outbox.dead(tenant, 1000)]
        for delivery_id in named:
            await webhooks.outbox.replay(delivery_id, tenant=tenant)
        return len(named)

    typer.echo(f"{plural(_with_webhooks(again), 'message')} due again.")


def _with_webhooks(work: Callable[[Webhooks], Awaitable[T]]) -> T:
    async def in_session(session: Session) -> T:
        return await work(Webhooks.through(session.client, session.settings, Seal(session.settings)))

    return look(in_session)


def _events(words: list[str] | None) -> tuple[WebhookEvent, ...]:
    names = [name for word in words or () for name in word.replace(" ", "").split(",") if name]
    if not names:
        return SUBSCRIBABLE
    try:
        return named_by_events(names)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--events'") from None


def _told(endpoint: Endpoint) -> str:
    if not endpoint.events:
        return "runs that name it"
    return "all events" if endpoint.events == SUBSCRIBABLE else ", ".join(endpoint.events)


def _tell_secret(endpoint: Endpoint, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(endpoint) | {"secret": secret})
        return
    typer.echo(secret)
    typer.secho(
        f"The endpoint's id is {endpoint.endpoint_id}. Keep the secret: it is not shown again.", err=True, dim=True
    )


def _as_json(endpoint: Endpoint) -> dict[str, object]:
    return endpoint.model_dump(mode="json", exclude={"secrets", "v"})


def _dead_as_json(dead: DeadWebhook) -> dict[str, object]:
    last = None if dead.last is None else dead.last.model_dump(mode="json")
    own = dead.owed.model_dump(mode="json", exclude={"v", "body"})
    more = {"delivery_id": dead.owed.delivery_id, "attempts": dead.attempts, "given_up_unix_s": dead.given_up_unix_s}
    return {**own, **more, "last": last}


def _attempts(attempts: list[WebhookAttempt]) -> Listing:
    listing = Listing("at (UTC)", "event", "about", "number", "status", Column("took", True), elastic="what came of it")
    for each in attempts:
        came = f"{each.error}{_quoted(each.answer)}" if each.error else "delivered"
        status = "" if each.status is None else each.status
        listing.add(moment(each.at_unix_s), each.event, each.about, each.number, status, span(each.took_s), came)
    return listing


def _quoted(answer: str) -> str:
    return f": {answer}" if answer.strip() else ""
