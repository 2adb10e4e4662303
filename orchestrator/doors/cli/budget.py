"""`toolfleet budget`: what tenants may use up, and how much of it they have.

Prints and asks; the budgets themselves are kept in `toolfleet.orchestrator.budgets`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console

from toolfleet.errors import CallerError
from toolfleet.orchestrator.budgets.tenants import Amounts, Standing, TenantBudgets, as_json_value
from toolfleet.orchestrator.doors.cli.on_fleet import on_redis
from toolfleet.orchestrator.doors.cli.tables import Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.run.accounts import Bounds
from toolfleet.spendings import spent_by_tools

T = TypeVar("T")

app = typer.Typer(
    help="What tenants may use up: set a budget, look at one, take one away.",
    epilog="Example: toolfleet budget set acme --usd 20 --per day",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


class Per(StrEnum):
    """How long a budget lasts, in UTC."""

    TOTAL = "total"
    DAY = "day"
    MONTH = "month"


class BudgetNotFound(CallerError):
    """A tenant has no such budget."""


Tenant = Annotated[str, typer.Argument(help="Whose budget: a tenant, as the keys of its clients say.")]
Lasting = Annotated[Per, typer.Option("--per", help="When it begins anew: never (total), each day or month in UTC.")]


@app.command("set", epilog="Example: toolfleet budget set acme --usd 100 --per month --strict")
def set_budget(
    tenant: Tenant,
    *,
    usd: Annotated[float | None, typer.Option(help="US dollars.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Input and output tokens together.")] = None,
    calls: Annotated[int | None, typer.Option(help="Calls of tools.")] = None,
    per: Lasting = Per.TOTAL,
    strict: Annotated[
        bool, typer.Option("--strict", help="Never go beyond: each reply is bounded by what is left.")
    ] = False,
) -> None:
    """Let a tenant use so much, in place of what it could in such a time. Holds within a second."""
    try:
        bounds = Bounds.model_validate({"usd": usd, "tokens": tokens, "calls": calls, "strict": strict})
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{first['loc'][0]}: " if first["loc"] else ""
        raise InvalidOption(f"{option}{first['msg'].removeprefix('Value error, ')}") from error

    async def store(budgets: TenantBudgets) -> list[Standing]:
        await budgets.set(tenant, per.value, bounds)
        return await budgets.of(tenant)

    _print(tenant, _on_budgets(store))


@app.command(epilog="Example: toolfleet budget show acme")
def show(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """Show what a tenant may use, has used, and has reserved for replies that it waits for.

    On a terminal as a table; into a pipe one line for each limit, with tabs between the columns: per, of, limit, used,
    reserved, remaining, strict, begins anew.
    """
    standings = _on_budgets(lambda budgets: budgets.of(tenant))
    if as_json:
        print_json([as_json_value(each) for each in standings])
    else:
        _print(tenant, standings)


@app.command()
def remove(tenant: Tenant, *, per: Lasting = Per.TOTAL) -> None:
    """Take a budget away: it limits nothing within a second."""
    if not _on_budgets(lambda budgets: budgets.remove(tenant, per.value)):
        raise BudgetNotFound(f"tenant {tenant} has no budget per {per.value}: toolfleet budget show {tenant}")
    typer.echo(one_line(f"Tenant {tenant} has no budget per {per.value} any more."))


@app.command(epilog="Example: toolfleet budget tools")
def tools(*, as_json: AsJson = False) -> None:
    """Show what each tool has spent elsewhere so far, as it has said with `ctx.spend`.

    On a terminal as a table; into a pipe one line for each tool, with a tab between its US dollars and its name.
    """
    spent = on_redis(lambda client, settings: spent_by_tools(client, settings.keys))
    if as_json:
        print_json([{"tool": tool, "spent_usd": usd} for tool, usd in spent.items()])
        return
    listing = Listing("usd", elastic="tool")
    for tool, usd in spent.items():
        listing.add(f"{usd:.4f}", tool)
    listing.print(Console(), f"{plural(len(spent), 'tool')} spent something")


def _on_budgets(work: Callable[[TenantBudgets], Awaitable[T]]) -> T:
    return on_redis(lambda client, settings: work(TenantBudgets(client, settings)))


def _print(tenant: str, standings: list[Standing]) -> None:
    if not standings:
        typer.echo(
            one_line(f"Tenant {tenant} has no budget. Set one: toolfleet budget set {tenant} --usd 20 --per day")
        )
        return
    listing = Listing("per", "of", "limit", "used", "reserved", "remaining", "strict", elastic="begins anew (UTC)")
    for standing in standings:
        for unit, amounts in standing.amounts.items():
            listing.add(
                standing.period,
                unit,
                *_written(unit, amounts),
                "yes" if standing.strict else "no",
                "" if standing.resets_unix_s is None else moment(standing.resets_unix_s),
            )
    limits = sum(len(standing.amounts) for standing in standings)
    listing.print(Console(), f"{plural(limits, 'limit')} of {one_line(tenant)}")


def _written(unit: str, amounts: Amounts) -> list[str]:
    each = (amounts.limit, amounts.used, amounts.reserved, amounts.remaining)
    return [f"{amount:.4f}" if unit == "usd" else f"{amount:.0f}" for amount in each]
