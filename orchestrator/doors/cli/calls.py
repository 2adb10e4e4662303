"""`toolfleet calls`: the calls that somebody still works on, and what a person may do to one.

Prints; how a call ends is its worker's word, or that of the other system that does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import orjson
import typer
from rich.console import Console
from rich.text import Text

from toolfleet.calls import Failed, FailureKind, Returned, run_of
from toolfleet.jobs import Completion, complete
from toolfleet.orchestrator.doors.cli.printed_log import PrintedLog
from toolfleet.orchestrator.doors.cli.sessions import Session, act, look
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import (
    AsJson,
    age,
    call_facts,
    deadline,
    how_far,
    moment_after,
    outcome,
    print_json,
    state_of,
    took,
    warn,
)
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import SHOWN_CHARACTERS, moment, one_line, plural, shortened
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.requested import turn_of
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.terminal import harmless
from toolfleet.wire import Seal

if TYPE_CHECKING:  # it loads models, Celery and all that works on runs
    from toolfleet.orchestrator.api import Orchestrator


class StateUnderWay(StrEnum):
    """The states of the calls that are listed."""

    QUEUED = CallState.QUEUED
    """It waits for a worker."""
    RUNNING = CallState.RUNNING
    """A worker has it."""
    SUBMITTED = CallState.SUBMITTED
    """Another system does its work."""
    AWAITING_APPROVAL = CallState.AWAITING_APPROVAL
    """It waits for a person's decision."""


FOLLOW_EVERY_S: Final = 1.0
"""How often new lines are looked for: workers write them as often."""

UNFINISHED: Final = frozenset(state for state in State if not state.is_terminal)

app = typer.Typer(
    help="Calls under way: list them, look at one and its log, cancel it, or complete one that is done elsewhere.",
    epilog="A call's id is RUN.TURN.POSITION; of RUN its beginning is enough. Exit status: 0 done, 1 an error, 2 wrong "
    "usage.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

WIDEST_NAME: Final = len("began (UTC)") + 2

CallId = Annotated[str, typer.Argument(metavar="CALL_ID", help="A call's id: RUN.TURN.POSITION.")]


@app.command("list", epilog="Examples: toolfleet calls list --run 3f9c   ·   toolfleet calls list --json")
def list_calls(
    *,
    run_id: Annotated[str, typer.Option("--run", help="Only the calls of this run; how its id begins is enough.")] = "",
    states: Annotated[
        list[StateUnderWay] | None, typer.Option("--state", help="Only calls in this state; may be given again.")
    ] = None,
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Only of this tool; may be given again.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only of runs begun since then: 90s, 30m, 2h, 3d, 2026-01-31.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, of the newest runs; 0 for all.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List the calls that are under way or wait for approval.

    On a terminal as a table; into a pipe one line for each call, with tabs between the columns: call, state, age, tool,
    handle, deadline, how far it is or its arguments.
    """
    wanted = _Wanted(
        run_id,
        limit or None,
        states=frozenset(states or ()),
        tools=frozenset(tools or ()),
        since_unix_s=None if since is None else moment_after(since),
    )
    look(lambda session: _list(session, wanted, as_json=as_json))


@app.command(epilog="Example: toolfleet calls show 3f9c.1.0")
def show(call_id: CallId, *, as_json: AsJson = False) -> None:
    """Show all that is known of a call. Secrets in its arguments are masked."""
    look(lambda session: _show(session, call_id, as_json=as_json))


@app.command(epilog="Examples: toolfleet calls logs 3f9c.1.0   ·   toolfleet calls logs 3f9c.1.0 --follow")
def logs(
    call_id: CallId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for the call if need be, and go on until it has ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a call's tool has logged, attempt by attempt: the newest lines that are kept.

    In JSON each line is one object.
    """
    look(lambda session: _logs(session, call_id, follow=follow, as_json=as_json))


@app.command(epilog="Example: toolfleet calls cancel 3f9c.1.0 3f9c.1.1")
def cancel(
    call_ids: Annotated[list[str], typer.Argument(metavar="CALL_ID…", help="Ids of calls: RUN.TURN.POSITION.")],
) -> None:
    """Cancel calls: queued ones never start, running ones are stopped, jobs elsewhere are called off.

    Their runs go on; the model is told. Of a call that belongs to no stored
    run nobody can say whether it still exists: it is cancelled if it does.
    """
    act(lambda session, orchestrator: _cancel(session, orchestrator, call_ids))


@app.command("complete", epilog='Example: toolfleet calls complete 3f9c.1.0 --result "42 pages"')
def complete_call(
    call_id: CallId,
    *,
    result: Annotated[str | None, typer.Option("--result", help="What the call returns, as text.")] = None,
    json_result: Annotated[str | None, typer.Option("--json-result", help="What the call returns, as JSON.")] = None,
    error: Annotated[str | None, typer.Option("--error", help="Why the call failed; the model reads it.")] = None,
) -> None:
    """End a call whose work another system does, as that system's callback would. The first result counts."""
    if [result, json_result, error].count(None) != 2:
        raise typer.BadParameter("say one of --result, --json-result and --error")
    ending = _ending(result, json_result, error)
    look(lambda session: _complete(session, call_id, ending))


def _ending(result: str | None, json_result: str | None, error: str | None) -> Returned | Failed:
    if error is not None:
        return Failed(kind=FailureKind.ERROR, message=error)
    if json_result is None:
        return Returned(content=result or "")
    try:
        return Returned(content=orjson.dumps(orjson.loads(json_result)).decode())
    except orjson.JSONDecodeError as mistake:
        raise typer.BadParameter(f"--json-result is no JSON: {mistake}") from None


class _Wanted(NamedTuple):
    """Which calls to list."""

    run_id: str
    limit: int | None
    states: frozenset[str]
    tools: frozenset[str]
    since_unix_s: float | None

    def includes(self, call: CallStanding) -> bool:
        """Return whether the call is one of them."""
        return (
            call.state.is_under_way
            and (not self.states or call.state in self.states)
            and (not self.tools or call.tool in self.tools)
        )


async def _list(session: Session, wanted: _Wanted, *, as_json: bool) -> None:
    calls = await _under_way(session, wanted)
    if as_json:
        print_json([call_facts(call) for call in calls])
    elif calls:
        _listed(calls).print(Console(), plural(len(calls), "call"))
    else:
        is_any = wanted == _Wanted("", wanted.limit, frozenset(), frozenset(), None)
        typer.echo("No calls are under way." if is_any else "No such calls are under way.")


def _listed(calls: Sequence[CallStanding]) -> Listing:
    listing = Listing(
        "call", "state", "age", "tool", Column("handle", True), Column("deadline", True), elastic="so far"
    )
    for call in calls:
        so_far = how_far(call) or call.arguments
        row = (call.call_id, state_of(call), age(call), call.tool, call.handle, deadline(call.deadline_unix_s), so_far)
        listing.add(*row)
    return listing


async def _under_way(session: Session, wanted: _Wanted) -> list[CallStanding]:
    if wanted.run_id:
        run_ids = [await session.store.named(wanted.run_id)]
    else:
        heads = await session.store.heads(limit=None, states=UNFINISHED, since_unix_s=wanted.since_unix_s)
        run_ids = [head.run_id for head in heads if head.calls]
    calls: list[CallStanding] = []
    for run_id in run_ids:
        if wanted.limit is not None and len(calls) >= wanted.limit:
            break
        try:
            calls += [call for call in (await session.overview.run(run_id)).calls if wanted.includes(call)]
        except RunNotFound:
            continue  # deleted meanwhile
    return calls[: wanted.limit]


async def _show(session: Session, beginning: str, *, as_json: bool) -> None:
    call = await session.overview.call(await session.call_named(beginning))
    if as_json:
        print_json(call_facts(call))
        return
    _must_be_known(call)
    console = Console()
    for name, value in _described(call):
        text = harmless(shortened(value, SHOWN_CHARACTERS * 20))
        console.print(Text(f"{name:<{WIDEST_NAME}}", "bold") + Text(text, ""), soft_wrap=True)


def _described(call: CallStanding) -> list[tuple[str, str]]:
    described = [
        ("call", call.call_id),
        ("tool", call.tool),
        ("state", state_of(call)),
        ("arguments", call.arguments),
        ("so far", "" if call.is_over else how_far(call)),
        ("handle", call.handle),
        ("age", age(call)),
        ("deadline", "" if call.is_over else deadline(call.deadline_unix_s)),
        ("began (UTC)", "" if call.began_unix_s is None else moment(call.began_unix_s)),
        ("ended (UTC)", "" if call.ended_unix_s is None else moment(call.ended_unix_s)),
        ("took", took(call)),
        ("worker", call.worker),
        ("trace", call.trace_id),
        ("attempt", "" if call.attempt is None else str(call.attempt)),
        ("result", outcome(call)),
    ]
    return [(name, value) for name, value in described if value]


async def _logs(session: Session, beginning: str, *, follow: bool, as_json: bool) -> None:
    call_id = await session.call_named(beginning)
    if follow:
        await _until_asked_for(session, call_id)
    printed = PrintedLog(as_json=as_json)
    while True:
        is_over = not follow or (await session.overview.call(call_id)).is_over
        printed.add(await session.logs.of(call_id))  # behind the call: that of one that has ended is whole
        if is_over:
            break
        await asyncio.sleep(FOLLOW_EVERY_S)
    if printed.is_empty and not as_json:
        typer.echo(f"Nothing that call {call_id} has logged is kept.", err=True)


async def _until_asked_for(session: Session, call_id: str) -> None:
    """Wait until there is such a call. Raises RunNotFound once there can be none."""
    is_told = False
    while True:
        # Before the call is looked for, which its run may make meanwhile.
        run = await _run_of(session, call_id)
        try:
            call = await session.overview.call(call_id)
        except RunNotFound:
            if run is None or not _may_ask_for(run, call_id):
                raise
        else:
            _must_be_known(call)
            return
        if not is_told:
            warn(f"call {call_id} is not asked for yet: waiting for its run, which is {run.state}")
            await session.warn_unless_somebody_goes_on(run.model)
            is_told = True
        await asyncio.sleep(FOLLOW_EVERY_S)


async def _run_of(session: Session, call_id: str) -> Run | None:
    try:
        return (await session.store.load(run_of(call_id))).run
    except RunNotFound:
        return None


def _may_ask_for(run: Run, call_id: str) -> bool:
    """Whether a run that goes on may come to this call: it asks for those of a turn in one reply."""
    return not run.state.is_terminal and turn_of(call_id) > run.turn


def _must_be_known(call: CallStanding) -> None:
    if call.state is CallState.UNKNOWN and not call.turn:
        raise RunNotFound(f"nothing is known of call {call.call_id}: no stored run asked for it, and it has no result")


async def _cancel(session: Session, orchestrator: Orchestrator, beginnings: Sequence[str]) -> None:
    call_ids = [await session.call_named(beginning) for beginning in beginnings]
    cancelling = [orchestrator.cancel_call(each, by=who()) for each in call_ids]
    ended = await asyncio.gather(*cancelling, return_exceptions=True)
    failures = [each for each in ended if isinstance(each, BaseException)]
    for call in ended:
        if isinstance(call, CallStanding):
            typer.echo(_told(call))
    if failures:
        raise failures[0]


def _told(call: CallStanding) -> str:
    if call.state is CallState.UNKNOWN:
        why = "its run is done, and nothing tells of it" if call.turn else "it belongs to no stored run"
        return f"call {call.call_id} is cancelled if it exists: {why}"
    if call.is_over:
        told = one_line(outcome(call), SHOWN_CHARACTERS)
        return f"call {call.call_id} {state_of(call)}" + (f": {told}" if told else "")
    return f"call {call.call_id} was told to stop, and is {state_of(call)} still"


async def _complete(session: Session, beginning: str, result: Returned | Failed) -> None:
    call_id = await session.call_named(beginning)
    done = await complete(session.client, session.settings, Seal(session.settings), call_id, result)
    match done:
        case Completion.COMPLETED:
            typer.echo(f"call {call_id} completed")
        case Completion.ALREADY:
            raise RunNotOpen(f"call {call_id} had a result already; this one was dropped")
        case Completion.UNKNOWN:
            raise RunNotOpen(f"call {call_id} waits for no job in another system: it never did, or it has ended")
