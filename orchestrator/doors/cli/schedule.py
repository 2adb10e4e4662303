"""`toolfleet schedule`: runs that begin by the clock. What may be asked when, `orchestrator/schedules/` decides."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.run_options import takes_run_options
from toolfleet.orchestrator.doors.cli.sessions import Session, act, look
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.schedules.kept import KeptSchedules
from toolfleet.orchestrator.schedules.records import MOST_MISSED, Tick
from toolfleet.orchestrator.schedules.shown import ScheduleStanding, standing_of
from toolfleet.orchestrator.store.run_store import title_of
from toolfleet.wire import Seal

if TYPE_CHECKING:  # it loads models, Celery and all that works on runs
    from toolfleet.orchestrator.api import Orchestrator

app = typer.Typer(
    help="Runs that begin by the clock: make a schedule, look, pause, resume, remove, or run one at once.",
    epilog='Example: toolfleet schedule add "0 8 * * 1-5" "What is new?" --tz Europe/Berlin',
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


class MissedTicks(StrEnum):
    """What becomes of ticks at which no orchestrator was there."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="A schedule's id, as the list has it.")]


@app.command(epilog='Example: toolfleet schedule add "0 8 * * 1-5" "What is new?" --tz Europe/Berlin --missed once')
@takes_run_options
def add(
    cron: Annotated[str, typer.Argument(help="When: minute hour day month weekday; six fields begin with seconds.")],
    question: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    *,
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="By whose clock, as Europe/Berlin.")] = "UTC",
    missed: Annotated[
        MissedTicks, typer.Option("--missed", help="What becomes of ticks at which no orchestrator was there.")
    ] = MissedTicks.SKIP,
    at_most: Annotated[
        int, typer.Option("--at-most", min=1, max=MOST_MISSED, help="With --missed all: for the newest so many.")
    ] = 100,
    model: ModelOption = None,
    as_json: AsJson = False,
    options: RunOptions,
) -> None:
    """Make a schedule: each tick of it begins a run, once, as long as there is any orchestrator with its model.

    Without --model, that of the only model that orchestrators have. A clock change doubles and swallows nothing.
    """
    asked = sys.stdin.read() if question == "-" else question
    by_us: RunOptions = {**options, "by": who()}

    async def make(_: Session, orchestrator: Orchestrator) -> ScheduleStanding:
        from toolfleet.orchestrator.doors.cli.choosing_model import model_name  # noqa: PLC0415  # loads models

        named = None if model is None else await model_name(model)
        made = await orchestrator.schedules.add(
            cron, asked, tz=tz, missed=missed.value, at_most=at_most, model=named, **by_us
        )
        return standing_of(made)

    made = act(make)
    if as_json:
        print_json(made.model_dump(mode="json"))
    else:
        typer.echo(made.schedule_id)
        typer.echo(f"ticks next at {_in_zone(made.next_unix_s, made.tz)}", err=True)


@app.command("list", epilog="Examples: toolfleet schedule list   ·   toolfleet schedule list --tenant acme --json")
def list_schedules(
    *,
    tenant: Annotated[str, typer.Option(help="Whose schedules; nobody's by default.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List schedules, the newest first: when each ticks next, and what its last tick has begun.

    On a terminal as a table; into a pipe one line for each, with tabs between the columns: id, next tick, cron, zone,
    missed ticks, last tick, question.
    """

    async def listed(session: Session) -> list[ScheduleStanding]:
        return [standing_of(each) for each in (await _kept(session).page(tenant=tenant, limit=limit)).schedules]

    found = look(listed)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
    elif found:
        _listed(found).print(Console(), plural(len(found), "schedule"))
    else:
        typer.echo('There is no schedule. Make one: toolfleet schedule add "0 8 * * 1-5" "What is new?"')


@app.command(epilog="Example: toolfleet schedule show s3fa1c2b09d77 --json")
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show a schedule, and what has come of its newest ticks."""

    async def shown(session: Session) -> tuple[ScheduleStanding, dict[str, str]]:
        standing = standing_of((await _kept(session).load(schedule_id, tenant=None)).schedule)
        return standing, {tick.run_id: await _state(session, tick) for tick in standing.ticks if tick.run_id}

    standing, states = look(shown)
    if as_json:
        print_json(standing.model_dump(mode="json") | {"states": states})
        return
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _rows(standing):
        table.add_row(Text(name, "dim"), Text(one_line(value)))
    console.print(table)
    if standing.ticks:
        listing = Listing("tick (UTC)", "state", elastic="run")
        for tick in standing.ticks:
            listing.add(moment(tick.tick_unix_s), states.get(tick.run_id, "no run"), _told(tick))
        listing.draw(console, "newest ticks")


@app.command(epilog="Example: toolfleet schedule pause s3fa1c2b09d77")
def pause(schedule_id: ScheduleId) -> None:
    """Begin no runs any more, until it is resumed. Those that have begun go on."""
    act(lambda _, orchestrator: orchestrator.schedules.pause(schedule_id))
    typer.echo(one_line(f"schedule {schedule_id} is paused"))


@app.command(epilog="Example: toolfleet schedule resume s3fa1c2b09d77")
def resume(schedule_id: ScheduleId) -> None:
    """Go on with the next tick. Those while it was paused do not count as missed."""
    standing = standing_of(act(lambda _, orchestrator: orchestrator.schedules.resume(schedule_id)))
    typer.echo(one_line(f"schedule {schedule_id} ticks next at {_in_zone(standing.next_unix_s, standing.tz)}"))


@app.command(epilog="Example: toolfleet schedule remove s3fa1c2b09d77")
def remove(schedule_id: ScheduleId) -> None:
    """Forget a schedule. The runs that it has begun go on, and stay stored."""
    act(lambda _, orchestrator: orchestrator.schedules.remove(schedule_id))
    typer.echo(one_line(f"schedule {schedule_id} is removed"))


@app.command(epilog="Example: toolfleet schedule run s3fa1c2b09d77")
def run(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Begin a run of it now, besides its ticks, and print the run's id."""
    run_id = act(lambda _, orchestrator: orchestrator.schedules.run(schedule_id))
    if as_json:
        print_json({"run_id": run_id})
    else:
        typer.echo(run_id)


def _kept(session: Session) -> KeptSchedules:
    return KeptSchedules(session.client, session.settings, Seal(session.settings))


async def _state(session: Session, tick: Tick) -> str:
    try:
        return (await session.store.load(tick.run_id)).run.state
    except RunNotFound:
        return "not kept any more"


def _listed(found: Sequence[ScheduleStanding]) -> Listing:
    listing = Listing(
        "id", "next (UTC)", "cron", "zone", Column("missed", True), Column("last (UTC)", True), elastic="question"
    )
    for each in found:
        next_one = "paused" if each.is_paused else moment(each.next_unix_s) if each.next_unix_s else "never"
        last = moment(each.ticks[0].tick_unix_s) if each.ticks else ""
        listing.add(each.schedule_id, next_one, each.cron, each.tz, each.missed, last, title_of(each.messages))
    return listing


def _rows(standing: ScheduleStanding) -> Iterator[tuple[str, str]]:
    yield "schedule", standing.schedule_id
    yield "asks", title_of(standing.messages)
    yield "ticks", f"{standing.cron} ({standing.tz})"
    yield "next", "paused" if standing.is_paused else _in_zone(standing.next_unix_s, standing.tz)
    bound = f", at most {standing.at_most}" if standing.missed == "all" else ""
    yield "missed", standing.missed + bound
    yield "model", standing.model
    if standing.tenant:
        yield "tenant", standing.tenant
    yield "made", f"{moment(standing.made_unix_s)} UTC by {standing.by}"


def _told(tick: Tick) -> str:
    if tick.missed:
        return f"{plural(tick.missed, 'tick')} missed: {tick.reason}"
    return tick.run_id or tick.reason


def _in_zone(unix_s: int | None, tz: str) -> str:
    if unix_s is None:
        return "no time"
    try:
        return f"{datetime.fromtimestamp(unix_s, ZoneInfo(tz)):%Y-%m-%d %H:%M:%S} {tz} ({moment(unix_s)} UTC)"
    except (KeyError, ValueError, OSError):  # a zone that this machine does not know
        return f"{moment(unix_s)} UTC"
