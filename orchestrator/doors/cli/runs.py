"""`toolfleet runs`: what is stored of runs, and what a person may do to one.

Prints and asks for confirmation; what may happen to a run, the run itself decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from toolfleet.errors import RunNotFound, RunNotOpen
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.assistants.assistant import RunFailed
from toolfleet.orchestrator.doors.cli.narration import narrated
from toolfleet.orchestrator.doors.cli.telling import (
    HANDLE_CHARACTERS,
    Desk,
    call_facts,
    console_for_tables,
    deadline,
    desk,
    how_far,
    moment,
    outcome,
    plain,
    print_json,
    shortened,
    span,
)
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.overview import AWAITING_APPROVAL, CallStanding, RunOverview, unix_s
from toolfleet.orchestrator.store.run_store import Entry, Head
from toolfleet.settings import Settings

MESSAGE_CHARACTERS = 2000

app = typer.Typer(
    help="Stored runs: list them, look at one, follow it, cancel, resume or delete it, decide about its calls.",
    epilog="Ids may be shortened to a beginning that no other run has. Exit status: 0 done, 1 an error, 2 wrong usage.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

RunId = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or how it begins.")]
RunIds = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of runs, or how they begin.")]
CallId = Annotated[str, typer.Argument(metavar="CALL_ID", help="A call's id: RUN.TURN.POSITION.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list", epilog="Examples: toolfleet runs list --state parked   ·   toolfleet runs list --json --limit 0")
def list_runs(
    *,
    states: Annotated[
        list[State] | None, typer.Option("--state", help="Only runs in this state; may be given again.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List stored runs, newest first."""
    with redis_or_embedded() as settings:
        asyncio.run(_list(settings, states or (), limit or None, as_json=as_json))


@app.command(epilog="Examples: toolfleet runs show 3f9c   ·   toolfleet runs show 3f9c --wait --json")
def show(
    run_id: RunId,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end first; then exit status 1 tells of a failure.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run: its messages, its calls, and what it waits for."""
    with redis_or_embedded() as settings:
        run = asyncio.run(_show(settings, run_id, wait=wait, as_json=as_json))
    if wait and run.state is not State.DONE:
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
    with redis_or_embedded() as settings:
        asyncio.run(_events(settings, run_id, follow=follow, as_json=as_json))


@app.command(epilog='Example: toolfleet runs cancel 3f9c 81aa --reason "the wrong question"')
def cancel(
    run_ids: RunIds,
    *,
    reason: Annotated[str, typer.Option(help="Why; the run's record keeps it.")] = "cancelled by request",
) -> None:
    """End runs now. Their calls are cancelled on the workers."""
    with redis_or_embedded() as settings:
        asyncio.run(_cancel(settings, run_ids, reason))


@app.command(epilog='Example: toolfleet runs resume 3f9c "Try again with the other file."')
def resume(
    run_id: RunId,
    message: Annotated[str, typer.Argument(help="What to say to the model; nothing if left out.")] = "",
) -> None:
    """Let a run that has ended go on, on any orchestrator that has its model."""
    with redis_or_embedded() as settings:
        asyncio.run(_resume(settings, run_id, message))


@app.command(epilog="Example: toolfleet runs delete 3f9c 81aa --yes")
def delete(
    run_ids: RunIds,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also runs that have not ended: cancel them first.")] = False,
) -> None:
    """Forget runs for good."""
    with redis_or_embedded() as settings:
        asyncio.run(_delete(settings, run_ids, yes=yes, force=force))


@app.command(epilog="""Example: toolfleet runs approve 3f9c.1.0 --arguments '{"path": "draft.txt"}'""")
def approve(
    call_id: CallId,
    *,
    arguments: Annotated[
        str | None, typer.Option("--arguments", help="A JSON object to run the call with instead of the model's.")
    ] = None,
) -> None:
    """Let a call run that waits for approval."""
    if arguments is not None:
        _check_arguments(arguments)
    with redis_or_embedded() as settings:
        asyncio.run(_decide(settings, call_id, Approval(granted=True, arguments=arguments)))


@app.command(epilog='Example: toolfleet runs deny 3f9c.1.0 --reason "that file is in use"')
def deny(
    call_id: CallId,
    *,
    reason: Annotated[str, typer.Option(help="Why not; the model reads it.")] = "",
) -> None:
    """Do not let a call run that waits for approval. The model is told, and the run goes on."""
    with redis_or_embedded() as settings:
        asyncio.run(_decide(settings, call_id, Approval(granted=False, reason=reason)))


def _check_arguments(arguments: str) -> None:
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"--arguments is no JSON: {error}") from None
    if not is_object:
        raise typer.BadParameter("--arguments must be a JSON object")


# --- looking --------------------------------------------------------------------------------------------------------


async def _list(settings: Settings, states: Collection[State], limit: int | None, *, as_json: bool) -> None:
    async with desk(settings) as open_desk:
        heads = await open_desk.store.heads(limit=limit, states=states)
    if as_json:
        print_json([head._asdict() for head in heads])
    elif heads:
        console_for_tables().print(_table_of_runs(heads))
    else:
        typer.echo("No runs are stored" + (f" that are {' or '.join(states)}." if states else "."))


async def _show(settings: Settings, beginning: str, *, wait: bool, as_json: bool) -> Run:
    async with desk(settings) as open_desk:
        run_id = await open_desk.store.named(beginning)
        if wait:
            await open_desk.store.end_of(run_id)
        seen = await open_desk.overview.run(run_id)
    under_way = [call for call in seen.calls if not call.is_over]
    if as_json:
        print_json(
            seen.run.model_dump(mode="json")
            | {"owner": seen.owner, "waits_for": [call_facts(call) for call in under_way]}
        )
    else:
        _print_run(seen, under_way, console_for_tables())
    return seen.run


async def _events(settings: Settings, beginning: str, *, follow: bool, as_json: bool) -> None:
    async with desk(settings) as open_desk:
        run_id = await open_desk.store.named(beginning)
        if as_json and not follow:
            print_json([_facts(entry) for entry in await open_desk.store.entries(run_id)])
            return
        console = Console(soft_wrap=True, highlight=False, markup=False)
        async with aclosing(_told(open_desk, run_id, follow=follow)) as entries:
            async for entry in entries:
                if as_json:
                    print_json(_facts(entry))
                else:
                    at = unix_s(entry)
                    console.print(f"{moment(at)}.{int(at * 1000) % 1000:03} {narrated(entry.event)}")


async def _told(open_desk: Desk, run_id: str, *, follow: bool) -> AsyncGenerator[Entry, None]:
    if not follow:
        for entry in await open_desk.store.entries(run_id):
            yield entry
        return
    async with aclosing(open_desk.store.follow(run_id)) as entries:
        async for entry in entries:
            yield entry


def _facts(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "at_unix_s": unix_s(entry), **entry.event.model_dump(mode="json")}


def _table_of_runs(heads: Sequence[Head]) -> Table:
    question = Column("question", no_wrap=True, overflow="ellipsis")
    table = Table(Column("id", no_wrap=True), "state", "began (UTC)", "changed", "turns", "calls", "model", question)
    table.title = f"{len(heads)} runs"
    for head in heads:
        changed = f"{moment(head.updated_unix_s)[11:]}"
        row = (head.run_id, head.state, moment(head.started_unix_s), changed, head.turn, head.calls, head.model)
        table.add_row(*(plain(cell) for cell in row), Text(head.title))
    return table


def _print_run(seen: RunOverview, under_way: Sequence[CallStanding], console: Console) -> None:
    run = seen.run
    facts = Table.grid(padding=(0, 2))
    for name, value in _described(seen):
        facts.add_row(Text(name, "bold"), plain(value))
    console.print(facts)
    console.print()
    for message in run.messages:
        _print_message(message, console)
    if seen.calls:
        console.print(table_of_calls(seen.calls, f"{len(seen.calls)} calls"))
    for call in under_way:
        if call.state == AWAITING_APPROVAL:
            console.print(Text(f"{call.tool} waits for approval: toolfleet runs approve {call.call_id}"))
            console.print(Text(f"  {call.arguments}"))


def _described(seen: RunOverview) -> list[tuple[str, object]]:
    run = seen.run
    tokens = f"{run.usage.input_tokens} tokens in, {run.usage.output_tokens} out"
    so_far = f"{run.turn} turns, {len(run.calls)} calls, {tokens}"
    described: list[tuple[str, object]] = [
        ("run", run.run_id),
        ("state", f"{run.state}: {run.reason}" if run.reason else run.state),
        ("model", run.model),
        ("began (UTC)", moment(run.started_unix_s)),
        ("so far", so_far),
    ]
    if not run.state.is_terminal:
        described.append(("worked on by", seen.owner or "nobody: waits for an orchestrator with its model"))
    if run.deadline_unix_s is not None and not run.state.is_terminal:
        described.append(("deadline", deadline(run.deadline_unix_s)))
    return described


def _print_message(message: Message, console: Console) -> None:
    name = f"tool {message.name}" if isinstance(message, ToolMessage) else message.role
    console.print(Text(name, "bold"), end=" ")
    console.print(Text(shortened(message.content, MESSAGE_CHARACTERS)), soft_wrap=True)
    if isinstance(message, AssistantMessage) and message.tool_calls:
        console.print(Text(f"  calls {', '.join(call.name for call in message.tool_calls)}", "dim"))


def table_of_calls(calls: Sequence[CallStanding], title: str, *, with_result: bool = True) -> Table:
    """Calls with their states, each as one row."""
    table = Table(
        Column("call", no_wrap=True),
        "tool",
        "state",
        "age",
        "so far",
        "handle",
        "deadline",
        *(["result"] if with_result else []),
    )
    table.title = title
    for call in calls:
        row = [
            *(call.call_id, call.tool, call.state.replace("_", " ")),
            "" if call.age_s is None or call.is_over else span(call.age_s),
            how_far(call),
            call.handle[:HANDLE_CHARACTERS],
            "" if call.is_over else deadline(call.deadline_unix_s),
        ]
        table.add_row(*(plain(cell) for cell in row), *([plain(outcome(call), 80)] if with_result else []))
    return table


# --- acting ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _acting(settings: Settings) -> AsyncIterator[tuple[Orchestrator, Desk]]:
    """Somebody who may write to runs without working on any."""
    async with desk(settings) as open_desk, Orchestrator(settings=settings) as orchestrator:
        yield orchestrator, open_desk


async def _cancel(settings: Settings, beginnings: Sequence[str], reason: str) -> None:
    async with _acting(settings) as (orchestrator, open_desk):
        # All are found before one is ended: a mistyped id must not leave half of it done.
        for run_id in [await open_desk.store.named(beginning) for beginning in beginnings]:
            under_way = len((await orchestrator.get(run_id)).calls_under_way)
            await orchestrator.cancel(run_id, reason)
            typer.echo(f"run {run_id} cancelled, and {under_way} calls with it")


async def _resume(settings: Settings, beginning: str, message: str) -> None:
    async with _acting(settings) as (orchestrator, open_desk):
        run_id = await open_desk.store.named(beginning)
        run = await orchestrator.resume(run_id, message)
        await open_desk.warn_unless_somebody_goes_on(run.model)
    typer.echo(f"run {run_id} goes on: toolfleet runs show {run_id} --wait")


async def _delete(settings: Settings, beginnings: Sequence[str], *, yes: bool, force: bool) -> None:
    async with _acting(settings) as (orchestrator, open_desk):
        runs = [await orchestrator.get(await open_desk.store.named(beginning)) for beginning in beginnings]
        open_runs = [run for run in runs if not run.state.is_terminal]
        if open_runs and not force:
            [first, *_] = open_runs
            raise RunNotOpen(
                f"run {first.run_id} has not ended: it is {first.state}; --force cancels it first. Nothing was deleted"
            )
        if not yes:
            typer.confirm(f"Delete {len(runs)} runs for good?", abort=True)
        for run in open_runs:
            with suppress(RunNotOpen, RunNotFound):  # it has ended by itself meanwhile
                await orchestrator.cancel(run.run_id, "deleted by request")
        deleted = [await orchestrator.delete(run.run_id) for run in runs]
    typer.echo(f"{sum(deleted)} deleted")


async def _decide(settings: Settings, beginning: str, approval: Approval) -> None:
    async with _acting(settings) as (orchestrator, open_desk):
        call_id = await open_desk.call_named(beginning)
        run = await orchestrator.approve(call_id, approval)
        await open_desk.warn_unless_somebody_goes_on(run.model)
    typer.echo(f"call {call_id} {'approved' if approval.granted else 'denied'}; run {run.run_id} goes on")
