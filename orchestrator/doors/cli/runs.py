"""`toolfleet runs`: what is stored of runs, and what a person may do to one.

Prints and asks for confirmation; what may happen to a run, the run itself decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from toolfleet.orchestrator.doors.cli.deciding import approve, deny
from toolfleet.orchestrator.doors.cli.editing import edited
from toolfleet.orchestrator.doors.cli.narration import narrated
from toolfleet.orchestrator.doors.cli.replaying import export, replay
from toolfleet.orchestrator.doors.cli.run_screen import FEW, print_run
from toolfleet.orchestrator.doors.cli.sessions import Session, act, look, newest_of_all
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import (
    WAITS_FOR_APPROVAL,
    AsJson,
    call_facts,
    moment_after,
    print_json,
    warn,
)
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import moment, plural, span
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.overview import RunOverview
from toolfleet.orchestrator.store.forking import after_turn
from toolfleet.orchestrator.store.history import Entry
from toolfleet.orchestrator.store.run_store import Head

if TYPE_CHECKING:  # it loads models, Celery and all that works on runs
    from toolfleet.orchestrator.api import Orchestrator

app = typer.Typer(
    help="Stored runs: list them, look at one, follow it, say something to it, cancel, resume, fork or delete it, "
    "decide about its calls, export and replay it.",
    epilog="Ids may be shortened to a beginning that no other run has. Exit status: 0 done, 1 an error, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

RunId = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or how it begins.")]
RunIds = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of runs, or how they begin.")]


@app.command("list", epilog="Examples: toolfleet runs list --state parked   ·   toolfleet runs list --json --limit 0")
def list_runs(
    *,
    states: Annotated[
        list[State] | None, typer.Option("--state", help="Only runs in this state; may be given again.")
    ] = None,
    awaiting: Annotated[
        bool, typer.Option("--awaiting-approval", help="Only runs with calls that a person has to decide about.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs begun since then: 90s, 30m, 2h, 3d, 2026-01-31.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List stored runs, newest first.

    On a terminal as a table; into a pipe one line for each run, with tabs between the columns: id, state, age, calls,
    turns, model, question.
    """
    since_unix_s = None if since is None else moment_after(since)
    wanted = _Wanted(limit or None, states or (), since_unix_s, awaiting)
    heads = newest_of_all(wanted.limit, lambda session: session.store.heads(**wanted._asdict()))
    if as_json:
        print_json([head._asdict() for head in heads])
    elif heads:
        _listed(heads).print(Console(), plural(len(heads), "run"))
    else:
        typer.echo(_none_of(wanted))


@app.command(epilog="Examples: toolfleet runs show 3f9c   ·   toolfleet runs show 3f9c --wait --json")
def show(
    run_id: RunId,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end first; then exit status 1 tells of a failure.")
    ] = False,
    calls: Annotated[bool, typer.Option("--calls", help="List all its calls, failures first.")] = False,
    messages: Annotated[bool, typer.Option("--messages", help="All its messages, whole.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run: what was said, its calls by tool, failures in full, and what it waits for.

    Of long conversations the middle is left out, and more than ten calls are counted rather than listed, unless asked
    for.
    """
    seen = look(lambda session: _show(session, run_id, wait=wait))
    run = seen.run
    if as_json:
        print_json(_facts_of(seen))
    else:
        print_run(seen, Console(), all_calls=calls, all_messages=messages)
    if wait and run.state is not State.DONE:
        from toolfleet.orchestrator.assistants.assistant import RunFailed  # noqa: PLC0415  # as above

        raise RunFailed(run)


@app.command(epilog="Example: toolfleet runs events 3f9c --follow")
def events(
    run_id: RunId,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: a list, or with --follow one line for each event.")
    ] = False,
) -> None:
    """Print what has happened to a run, one line for each event, with its time (UTC)."""
    look(lambda session: _events(session, run_id, follow=follow, as_json=as_json))


@app.command(epilog='Example: toolfleet runs cancel 3f9c 81aa --reason "the wrong question"')
def cancel(
    run_ids: RunIds,
    *,
    reason: Annotated[str, typer.Option(help="Why; the run's record keeps it.")] = "cancelled by request",
) -> None:
    """End runs now. Their calls are cancelled on the workers."""
    act(lambda session, orchestrator: _cancel(session, orchestrator, run_ids, reason))


@app.command(epilog='Example: toolfleet runs resume 3f9c "Try again with the other file."')
def resume(
    run_id: RunId,
    message: Annotated[str, typer.Argument(help="What to say to the model; nothing if left out.")] = "",
) -> None:
    """Let a run that has ended go on, on any orchestrator that has its model."""
    act(lambda session, orchestrator: _resume(session, orchestrator, run_id, message))


@app.command(
    epilog='Examples: toolfleet runs fork 3f9c --at 2 "And in metres?"   ·   toolfleet runs fork 3f9c --at 2 --edit'
)
def fork(
    run_id: RunId,
    message: Annotated[str, typer.Argument(help="What to say to the model; nothing if left out.")] = "",
    *,
    at: Annotated[
        int,
        typer.Option(
            min=0, metavar="TURN", help="The last reply, with the results of its calls, that it begins with; 0: none."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another model; some orchestrator must have it.")
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", help="Edit the conversation first, as JSON in your editor ($VISUAL, $EDITOR).")
    ] = False,
) -> None:
    """Begin a new run with what one had come to after a turn. No call is made again, and that run stays as it is."""
    act(lambda session, orchestrator: _fork(session, orchestrator, run_id, message, at=at, model=model, edit=edit))


@app.command(epilog='Example: toolfleet runs say 3f9c "Only the files of this year." --interrupt')
def say(
    run_id: RunId,
    message: Annotated[str, typer.Argument(help="What to say to the model.")],
    *,
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="Call off first what the run waits for: calls, and approvals.")
    ] = False,
) -> None:
    """Say something to a run that goes on: its model reads it before its next reply."""
    act(lambda session, orchestrator: _say(session, orchestrator, run_id, message, interrupt=interrupt))


@app.command(epilog="Example: toolfleet runs delete 3f9c 81aa --yes")
def delete(
    run_ids: RunIds,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also runs that have not ended: cancel them first.")] = False,
) -> None:
    """Delete runs for good."""
    act(lambda session, orchestrator: _delete(session, orchestrator, run_ids, yes=yes, force=force))


app.command(
    epilog="Examples: toolfleet runs approve 3f9c   ·   "
    """toolfleet runs approve 3f9c.1.0 --arguments '{"path": "draft.txt"}'"""
)(approve)
app.command(epilog='Example: toolfleet runs deny 3f9c.1.0 --reason "that file is in use"')(deny)
app.command(
    epilog="Examples: toolfleet runs export 3f9c -o run.jsonl   ·   "
    "toolfleet runs export --state done --since 1d -o runs.jsonl"
)(export)
app.command(
    epilog="Examples: toolfleet runs replay run.jsonl   ·   "
    "toolfleet runs replay run.jsonl --tools my_tools --with my_app:orchestrator"
)(replay)


# --- looking --------------------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """Which runs to list."""

    limit: int | None
    states: Collection[State]
    since_unix_s: float | None
    awaiting_approval: bool


def _none_of(wanted: _Wanted) -> str:
    """Return what is said where nothing is listed."""
    kinds = [f"are {' or '.join(wanted.states)}"] if wanted.states else []
    kinds += ["wait for approval"] if wanted.awaiting_approval else []
    kinds += [f"began since {moment(wanted.since_unix_s)} UTC"] if wanted.since_unix_s is not None else []
    return "No runs are stored" + (f" that {' and '.join(kinds)}." if kinds else ".")


async def _show(session: Session, beginning: str, *, wait: bool) -> RunOverview:
    run_id = await session.store.named(beginning)
    if wait:
        await session.store.end_of(run_id, on_news=_Waiting().heed)
    return await session.overview.run(run_id)


def _facts_of(seen: RunOverview) -> dict[str, Any]:
    under_way = [call_facts(call) for call in seen.calls if call.state.is_under_way]
    return seen.run.model_dump(mode="json") | {"owner": seen.owner, "waits_for": under_way, "set_aside": seen.set_aside}


async def _events(session: Session, beginning: str, *, follow: bool, as_json: bool) -> None:
    run_id = await session.store.named(beginning)
    if as_json and not follow:
        print_json([_facts(entry) for entry in await session.store.entries(run_id)])
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    async with aclosing(_told(session, run_id, follow=follow)) as entries:
        async for entry in entries:
            if as_json:
                print_json(_facts(entry))
            else:
                at = entry.at_unix_s
                console.print(f"{moment(at)}.{int(at * 1000) % 1000:03} {narrated(entry.event)}")


async def _told(session: Session, run_id: str, *, follow: bool) -> AsyncGenerator[Entry, None]:
    if not follow:
        for entry in await session.store.entries(run_id):
            yield entry
        return
    async with aclosing(session.store.follow(run_id)) as entries:
        async for entry in entries:
            yield entry


def _facts(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "at_unix_s": entry.at_unix_s, **entry.event.model_dump(mode="json")}


def _listed(heads: Sequence[Head]) -> Listing:
    listing = Listing("id", "state", "age", "calls", Column("turns", True), Column("model", True), elastic="question")
    for head in heads:
        state = WAITS_FOR_APPROVAL if head.awaiting_approval else head.state
        age = span(max(0.0, time.time() - head.started_unix_s))
        listing.add(head.run_id, state, age, head.calls, head.turn, head.model, head.title)
    return listing


class _Waiting:
    """Tells on standard error of each call that a person has to decide about, once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def heed(self, run: Run) -> None:
        """Look at the run as it stands."""
        fresh = [call for call in run.awaiting_approval if call.call_id not in self._told]
        self._told.update(call.call_id for call in fresh)
        for call in fresh[:FEW]:
            warn(f"{call.tool} {WAITS_FOR_APPROVAL}: toolfleet runs approve {call.call_id}")
        if len(fresh) > FEW:
            warn(f"{plural(len(fresh) - FEW, 'call')} more: toolfleet runs approve {run.run_id} --all")


# --- acting ---------------------------------------------------------------------------------------------------------


async def _cancel(session: Session, orchestrator: Orchestrator, beginnings: Sequence[str], reason: str) -> None:
    # All are found before one is ended: a mistyped id must not leave half of it done.
    for run_id in [await session.store.named(beginning) for beginning in beginnings]:
        under_way = len((await orchestrator.get(run_id)).calls_under_way)
        await orchestrator.cancel(run_id, reason, by=who())
        typer.echo(f"run {run_id} cancelled, and {plural(under_way, 'call')} with it")


async def _resume(session: Session, orchestrator: Orchestrator, beginning: str, message: str) -> None:
    run_id = await session.store.named(beginning)
    run = await orchestrator.resume(run_id, message, by=who())
    await session.warn_unless_somebody_goes_on(run.model)
    typer.echo(f"run {run_id} goes on: toolfleet runs show {run_id} --wait")


async def _fork(
    session: Session,
    orchestrator: Orchestrator,
    beginning: str,
    message: str,
    *,
    at: int,
    model: str | None,
    edit: bool,
) -> None:
    run_id = await session.store.named(beginning)
    found, entries = await session.store.history(run_id)
    # In a thread: people take their time, and this process has a lease.
    messages = await asyncio.to_thread(edited, after_turn(entries, at).messages) if edit else None
    begun = await orchestrator.fork(run_id, message, at=at, model=model, messages=messages, by=who())
    await session.warn_unless_somebody_goes_on(model or found.run.model)
    typer.echo(f"run {begun} begins behind turn {at} of run {run_id}: toolfleet runs show {begun} --wait")


async def _say(session: Session, orchestrator: Orchestrator, beginning: str, message: str, *, interrupt: bool) -> None:
    run_id = await session.store.named(beginning)
    run = await orchestrator.say(run_id, message, interrupt=interrupt, by=who())
    await session.warn_unless_somebody_goes_on(run.model)
    waits = len(run.calls_under_way) + len(run.awaiting_approval)
    typer.echo(f"run {run_id} reads it next" + (f", behind {plural(waits, 'open call')}" if waits else ""))


async def _delete(
    session: Session, orchestrator: Orchestrator, beginnings: Sequence[str], *, yes: bool, force: bool
) -> None:
    runs = [await orchestrator.get(await session.store.named(beginning)) for beginning in beginnings]
    open_runs = [run for run in runs if not run.state.is_terminal]
    if open_runs and not force:
        [first, *_] = open_runs
        raise RunNotOpen(
            f"run {first.run_id} has not ended: it is {first.state}; --force cancels it first. Nothing was deleted"
        )
    if not yes:
        typer.confirm(f"Delete {plural(len(runs), 'run')} for good?", abort=True)
    for run in open_runs:
        with suppress(RunNotOpen, RunNotFound):  # it has ended by itself meanwhile
            await orchestrator.cancel(run.run_id, "deleted by request", by=who())
    deleted = [await orchestrator.delete(run.run_id) for run in runs]
    typer.echo(f"{sum(deleted)} deleted")
