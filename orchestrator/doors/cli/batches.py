"""`toolfleet batches`: how batches stand, and their cancel. They are begun by `toolfleet batch`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.batch.cancelling import cancel_batch
from toolfleet.orchestrator.doors.cli.sessions import Session, act, look
from toolfleet.orchestrator.doors.cli.tables import Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural, span
from toolfleet.orchestrator.store.batches import Batches, BatchRecord, BatchRunPage, BatchState
from toolfleet.wire import Seal

app = typer.Typer(
    help="How batches stand: list them, look at one and its runs, cancel it. `toolfleet batch` begins them.",
    epilog="Examples: toolfleet batches list   ·   toolfleet batches show nightly-3fa1c2",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

BatchId = Annotated[str, typer.Argument(metavar="ID", help="A batch's id, as the list has it.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]


@app.command("list", epilog="Examples: toolfleet batches list   ·   toolfleet batches list --tenant acme --json")
def list_batches(
    *,
    tenant: Annotated[str, typer.Option(help="Whose batches; nobody's by default.")] = "",
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List batches, those first that are open, then those that ended last."""
    found = look(lambda session: _batches(session).page(tenant=tenant, limit=limit)).batches
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
    elif found:
        _listed(found).print(Console(), plural(len(found), "batch").replace("batchs", "batches"))
    else:
        typer.echo("No batch is noted. Begin one: toolfleet batch in.jsonl out.jsonl")


@app.command(epilog="Example: toolfleet batches show nightly-3fa1c2 --json")
def show(batch_id: BatchId, *, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Show a batch, and some of its runs."""
    record, runs = look(lambda session: _show(session, batch_id, limit))
    if as_json:
        print_json(record.model_dump(mode="json") | {"runs": [head._asdict() for head in runs.heads]})
        return
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _rows(record):
        table.add_row(Text(name, "dim"), Text(one_line(value)))
    console.print(table)
    listing = Listing("run", "state", "calls", elastic="question")
    for head in runs.heads:
        listing.add(head.run_id, head.state, head.calls, head.title)
    if runs.heads:
        listing.draw(console, "runs, some of them" if runs.after else plural(len(runs.heads), "run"))


@app.command(epilog="Example: toolfleet batches cancel nightly-3fa1c2")
def cancel(batch_id: BatchId) -> None:
    """Cancel a batch, and the runs that it has begun."""
    record = act(lambda session, orchestrator: _cancel(session, orchestrator, batch_id))
    is_told = record.state is not BatchState.CANCELLED
    typer.echo(f"batch {batch_id} {'is told to stop' if is_told else 'and its open runs are cancelled'}")


def _batches(session: Session) -> Batches:
    return Batches(session.client, session.settings, Seal(session.settings))


async def _show(session: Session, batch_id: str, limit: int) -> tuple[BatchRecord, BatchRunPage]:
    batches = _batches(session)
    record = await batches.load(batch_id)
    return record, await batches.runs(record, limit=limit)


async def _cancel(session: Session, orchestrator: Orchestrator, batch_id: str) -> BatchRecord:
    return await cancel_batch(_batches(session), orchestrator, batch_id, tenant=None, by=who())


def _listed(found: list[BatchRecord]) -> Listing:
    listing = Listing("id", "state", "lines", "written", "failed", "in hand", "noted", elastic="input")
    for each in found:
        noted = f"{span(max(0.0, time.time() - each.updated_unix_s))} ago"
        counts = each.lines, each.written, each.failed, each.in_hand
        listing.add(each.batch_id, each.state, *counts, noted, each.source)
    return listing


def _rows(record: BatchRecord) -> Iterator[tuple[str, str]]:
    yield "batch", record.batch_id
    yield "state", f"{record.state}: {record.reason}" if record.reason else record.state
    refused = f" ({record.refused} of them cannot be run)" if record.refused else ""
    yield "lines", f"{record.written} of {record.lines} written: {record.ok} ok, {record.failed} failed{refused}"
    yield "in hand", plural(record.in_hand, "run")
    yield "calls", f"{record.calls} ({record.failed_calls} failed)"
    yield "tokens", f"{record.usage.input_tokens} in, {record.usage.output_tokens} out"
    if record.cost is not None:
        yield "cost", f"{record.cost:.4f}"
    yield "from", f"{record.source} to {record.target}, by {record.by or 'somebody'}"
    started = f", started {plural(record.starts, 'time')}" if record.starts > 1 else ""
    yield "begun", f"{moment(record.began_unix_s)} UTC{started}"
    if record.ended_unix_s is not None:
        yield "ended", f"{moment(record.ended_unix_s)} UTC"
