"""`toolfleet batch`: thousands of runs from a file, one line each."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from toolfleet.connections import connect_async
from toolfleet.errors import ToolfleetError
from toolfleet.event_loop import run_service
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import LocalFleet, redis_or_embedded, where_processes_join
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.batch import (
    BatchCancelled,
    BatchNotes,
    BatchRunner,
    Identity,
    Input,
    Manner,
    Output,
    Predecessor,
    Prices,
    Summary,
    Tally,
    opened_input,
    read_lines,
)
from toolfleet.orchestrator.doors.cli.batch_progress import print_summary, showing_batch
from toolfleet.orchestrator.doors.cli.choosing_model import chosen_model, name_of_model
from toolfleet.orchestrator.doors.cli.conversation import must_offer_tools
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.run_options import takes_run_options
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import plural
from toolfleet.orchestrator.errors import OutputUnusable
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import RunOptions, terms_of
from toolfleet.orchestrator.store.batches import Batches, BatchRecord
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.terminal import harmless_json
from toolfleet.wire import Seal

MAX_CONCURRENCY: Final = 1000
"""A model's client holds no more connections."""


class LinesFailed(ToolfleetError):
    """The batch is through, and some of its lines have no answer."""


@takes_run_options
def batch(
    source: Annotated[str, typer.Argument(metavar="IN", help="JSON lines to read; - for standard input.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="JSON lines to write; - for standard output.")],
    *,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", help="A module with tools: workers for it are started, and stopped afterwards."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=MAX_CONCURRENCY, help="Runs at a time.")] = 100,
    batch_id: Annotated[
        str | None, typer.Option(help="The batch's name; otherwise it is derived from the input and these options.")
    ] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="Write in the order of the input.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Let runs go on whose line in OUT has no answer.")
    ] = False,
    model: ModelOption = None,
    any_model: Annotated[
        bool, typer.Option("--any-model", help="Take lines in OpenAI's format whatever model they name.")
    ] = False,
    cancel_on_interrupt: Annotated[
        bool, typer.Option("--cancel-on-interrupt", help="Ctrl-C cancels what is under way; otherwise it is kept.")
    ] = False,
    price_in: Annotated[float | None, typer.Option(min=0, max=1e9, help="Price of a million tokens in.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, max=1e9, help="Price of a million tokens out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")] = False,
    options: RunOptions,
) -> None:
    """Run one conversation for each line of IN, and write one line for each to OUT.

    A line is {"id": …, "question": …} (or "messages", and any option of a run where it differs: "tools", "timeout_s",
    …) or a line of OpenAI's Batch API (with such options in its body's "toolfleet"), and its output has the same
    format. A line that cannot be run is in the output with its reason. Calls go behind those of others unless
    --priority or the line says otherwise.

    Stopped by whatever, the same command goes on where it was: lines in OUT are done, runs under way are gone on with
    from the store, and no model is asked twice for a reply that is stored.
    """
    _refuse_contradictions(source, target, as_json=as_json)
    name_of_model(model)  # said before workers are started, if it cannot be asked
    console = Console(stderr=True)
    options = {"priority": Priority.BATCH, **options}
    with ExitStack() as stack:
        lines = stack.enter_context(opened_input(source))
        settings = stack.enter_context(redis_or_embedded())
        if tools:
            with console.status("starting workers …"):
                settings = stack.enter_context(_fleet(tools, settings)).settings
        session = _BatchStart(
            lines,
            source,
            target,
            console=console,
            manner=Manner(options=options, concurrency=concurrency, ordered=ordered, again=retry_failed),
            batch_id=batch_id,
            model=model,
            any_model=any_model,
            prices=Prices(price_in, price_out),
            cancels=cancel_on_interrupt,
        )
        collect_rarely()
        try:
            summary = run_service(session.run(settings))
        except BatchCancelled:
            session.say_how_to_go_on(cancelled=True)
            raise
        except (KeyboardInterrupt, ToolfleetError):
            session.say_how_to_go_on(cancelled=cancel_on_interrupt)
            raise
    if as_json:
        sys.stdout.write(harmless_json(summary.model_dump_json(indent=2)) + "\n")
    print_summary(summary, console)
    if summary.failed:
        raise LinesFailed(
            f"{summary.failed} of {plural(summary.done_before + summary.ok + summary.failed, 'line')} failed: "
            f"their reasons are in {target}"
        )


class _BatchStart:
    """One start of the command, from the choice of a model to the summary."""

    def __init__(
        self,
        lines: Input,
        source: str,
        target: str,
        *,
        console: Console,
        manner: Manner,
        batch_id: str | None,
        model: str | None,
        any_model: bool,
        prices: Prices,
        cancels: bool,
    ) -> None:
        self._lines = lines
        self._source = source
        self._target = target
        self._console = console
        self._manner = manner
        self._batch_id = batch_id
        self._model = model
        self._any_model = any_model
        self._prices = prices
        self._cancels = cancels
        self._tally = Tally()
        self._in_hand = 0

    async def run(self, settings: Settings) -> Summary:
        """Run the batch to its end."""
        async with chosen_model(self._console, self._model) as model:
            identity = self._identity(model, settings.id_prefix)
            self._console.print(f"[dim]batch: {identity.batch_id}[/]", soft_wrap=True, highlight=False)
            with Output(self._target, identity, again=self._manner.again) as output:
                before = Predecessor.at(settings, identity, output)
                await before.give_up_its_runs()
                async with Orchestrator(model, settings=settings) as orchestrator:
                    await before.make_way_for(orchestrator.orchestrator_id)
                    async with connect_async(settings) as client:
                        record = self._record(identity, model.name, orchestrator.orchestrator_id)
                        notes = BatchNotes(Batches(client, settings, Seal(settings)), record)
                        named = None if self._any_model else model.name
                        return await self._run(orchestrator, identity, output, named, notes)

    def _record(self, identity: Identity, model: str, orchestrator_id: str) -> BatchRecord:
        return BatchRecord(
            batch_id=identity.prefix.removesuffix("-"),
            tenant=self._manner.options.get("tenant") or "",
            model=model,
            by=who(),
            source=self._source,
            target=self._target,
            orchestrator_id=orchestrator_id,
            lines=self._lines.count,
        )

    async def _run(
        self, orchestrator: Orchestrator, identity: Identity, output: Output, model: str | None, notes: BatchNotes
    ) -> Summary:
        await must_offer_tools(orchestrator)
        await notes.begin()
        began_s = time.monotonic()
        with showing_batch(self._console, total=self._lines.count) as show:
            runner = BatchRunner(orchestrator, identity, output, self._manner, show)
            self._tally = runner.tally
            work = runner.run(read_lines(self._lines.lines(), model=model))
            try:
                await notes.while_it_runs(runner, output, self._prices, work, cancels=self._cancels)
            finally:
                self._in_hand = len(runner.in_hand)
        return runner.tally.summary(
            identity.batch_id,
            lines=self._lines.count,
            wall_s=time.monotonic() - began_s,
            prices=self._prices,
        )

    def say_how_to_go_on(self, *, cancelled: bool) -> None:
        """Say what an interrupted batch leaves, and how it is taken up again."""
        if not (self._tally.written or self._tally.done_before or self._in_hand):
            return
        done = self._tally.done_before + self._tally.written
        fate = "cancelled" if cancelled else "kept in the store"
        under_way = "was under way and is" if self._in_hand == 1 else "were under way and are"
        self._console.print(
            f"{done} of {plural(self._lines.count, 'line')} {'is' if self._lines.count == 1 else 'are'} written, "
            f"{plural(self._in_hand, 'run')} {under_way} {fate}.\n"
            f"To go on: {shlex.join(['toolfleet', *sys.argv[1:]])}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def _identity(self, model: ChatModel, id_prefix: str) -> Identity:
        if self._batch_id is not None:
            return Identity.given(self._batch_id, model=model.name, id_prefix=id_prefix)
        described = terms_of(self._manner.options).model_dump(mode="json", exclude_unset=True)
        return Identity.derived(self._lines.sha256, described, model=model.name, id_prefix=id_prefix)


def _fleet(modules: list[str], settings: Settings) -> LocalFleet:
    """Make workers on the server that stays, so that runs under way are still there when the batch is started again."""
    return LocalFleet(
        modules,
        redis_url=settings.redis_url,
        environment=where_processes_join(),
    )


def _refuse_contradictions(source: str, target: str, *, as_json: bool) -> None:
    if as_json and target == "-":
        raise OutputUnusable("--json and the output - both want standard output: name a file for one of them")
    if source != "-" and target != "-" and Path(source).resolve() == Path(target).resolve():
        raise OutputUnusable(f"{target} is the input: name another file for the output")
