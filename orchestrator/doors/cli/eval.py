"""`toolfleet eval`: exported runs begun anew with another model, and how many come to the right answer.

Reads, shows and counts; what a run is and when it has passed, `toolfleet.orchestrator.replay` says.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toolfleet.errors import CallerError, ToolfleetError
from toolfleet.orchestrator.doors.cli.choosing_model import chosen_model, name_of_model
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.wording import dollars, one_line, plural
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.replay import checks
from toolfleet.orchestrator.replay.evaluating import Evaluated, Evaluation, Used
from toolfleet.orchestrator.replay.export import Export, exports_in, read_exports
from toolfleet.settings import new_secret, read_settings
from toolfleet.terminal import harmless_json
from toolfleet.toolbox import resolve

MAX_CONCURRENCY: Final = 200

SAY_EVERY_S: Final = 10.0
"""Where no person looks, a line so often."""


class TooFewPass(ToolfleetError):
    """Fewer runs have passed than were asked for."""


app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.command(
    epilog="Examples: toolfleet eval runs.jsonl --model gpt-5-mini   ·   "
    "toolfleet eval runs.jsonl --model rehearsal --check contains --min-pass-rate 0.9   ·   "
    "toolfleet eval runs.jsonl --check my_checks:cites_a_source --json"
)
def evaluate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Files of `toolfleet runs export`; - for standard input.")
    ],
    *,
    model: ModelOption = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK",
            help="exact (the default), contains, schema, schema:FILE, or module:function; may be given again, "
            "and then all must hold.",
        ),
    ] = None,
    min_pass_rate: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit status 1 where a smaller part passes; 0.9 for example.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=MAX_CONCURRENCY, help="Runs at a time.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every run, and the sums.")] = False,
) -> None:
    """Begin exported runs anew with another model, and count how many come to the right answer.

    Recorded tools answer: a call of the same tool with the same arguments comes to what it came to then, and any other
    call to a failure that says so, which is counted. No worker, no Redis, and no effect; only the model is asked.
    Ctrl-C stops what is under way, and shows what is there.
    """
    asked = [_check(name) for name in check or ["exact"]]
    exports = _read(files)
    name_of_model(model)  # said before anything is begun, if it cannot be asked
    console = Console(stderr=True)
    sheet = _Sheet(exports)
    try:
        asyncio.run(_evaluate(sheet, console, model, asked, concurrency))
    finally:
        if sheet.done:
            sheet.print(as_json=as_json)
    if min_pass_rate is not None and sheet.pass_rate < min_pass_rate:
        raise TooFewPass(f"{sheet.pass_rate:.0%} of the runs have passed, and {min_pass_rate:.0%} are asked for")


# --- what is asked for ----------------------------------------------------------------------------------------------


def _read(files: Sequence[str]) -> list[Export]:
    """Return the runs of these files. Raises ExportUnreadable."""
    exports: list[Export] = []
    for file in files:
        exports += exports_in(sys.stdin.buffer, "standard input") if file == "-" else read_exports([Path(file)])
    for export in exports:
        try:
            _ = export.run
        except IllegalTransition as error:
            raise CallerError(f"run {export.run_id} cannot have happened as this version sees it: {error}") from None
    return exports


def _check(name: str) -> checks.Check:
    """Return the check that is meant. Raises ToolModuleError for a function that is not there, InvalidOption."""
    kind, colon, rest = name.partition(":")
    match kind:
        case "exact" if not colon:
            return checks.exact()
        case "contains" if not colon:
            return checks.contains()
        case "schema":
            return checks.fits(_schema(Path(rest)) if colon else None)
    if not colon:
        raise typer.BadParameter(
            f"{name!r} is no check: exact, contains, schema, schema:FILE or module:function", param_hint="--check"
        )
    sys.path.insert(0, str(Path.cwd()))
    found = resolve(name, "a check")
    if not callable(found):
        raise typer.BadParameter(f"{name} is no function", param_hint="--check")
    return checks.own(name, found)


def _schema(path: Path) -> dict[str, Any]:
    try:
        schema: Any = orjson.loads(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint="--check") from None
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"{path} is not JSON: {error}", param_hint="--check") from None
    if not isinstance(schema, dict):
        raise typer.BadParameter(f"{path} holds no JSON Schema", param_hint="--check")
    return schema


# --- the work -------------------------------------------------------------------------------------------------------


async def _evaluate(
    sheet: _Sheet, console: Console, named: str | None, asked: Sequence[checks.Check], concurrency: int
) -> None:
    settings = read_settings(secret=new_secret())  # of nobody: nothing is signed that anybody reads
    async with chosen_model(console, named) as model, aclosing(model):
        sheet.model = model.name
        evaluation = Evaluation(model, settings, asked, concurrency)
        with _showing(console, sheet) as show:

            def done(evaluated: Evaluated) -> None:
                sheet.done.append(evaluated)
                show()

            await evaluation.of_all(sheet.exports, done)


@contextmanager
def _showing(console: Console, sheet: _Sheet) -> Iterator[Any]:
    """Yield what is called with each run that has ended: a bar on a terminal, a line now and then elsewhere."""
    total = len(sheet.exports)
    if not console.is_terminal:
        said_s = time.monotonic()

        def say() -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= SAY_EVERY_S:
                said_s = time.monotonic()
                console.print(f"{len(sheet.done)} of {plural(total, 'run')}, {sheet.passed} passed", soft_wrap=True)

        yield say
        return
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[passed]} passed"), console=console, transient=True) as bars:
        bar = bars.add_task("runs", total=total, passed=0)
        yield lambda: bars.update(bar, completed=len(sheet.done), passed=sheet.passed)


# --- what has come of it --------------------------------------------------------------------------------------------


class _Sheet:
    """The runs that have ended so far, in the order of the files, and their sums."""

    def __init__(self, exports: Sequence[Export]) -> None:
        self.exports = exports
        self.model = ""
        self.done: list[Evaluated] = []

    @property
    def passed(self) -> int:
        return sum(each.passed for each in self.done)

    @property
    def pass_rate(self) -> float:
        """Of those that have ended; of none, none."""
        return self.passed / len(self.done) if self.done else 0.0

    def print(self, *, as_json: bool) -> None:
        """Print a table, or one JSON document."""
        place = {export.run_id: at for at, export in enumerate(self.exports)}
        self.done.sort(key=lambda each: place[each.run_id])
        if as_json:
            shown = {**self._sums(), "results": [each.model_dump(mode="json") for each in self.done]}
            sys.stdout.write(harmless_json(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()) + "\n")
            return
        listing = Listing("run", "passed", "turns", "calls", Column("cost", True), elastic="why not")
        for each in self.done:
            why = "; ".join(f"{name}: {said}" for name, said in each.complaints.items())
            cost = "" if each.used.usd is None else dollars(each.used.usd)
            calls = f"{each.used.calls} ({each.unrecorded} unrecorded)" if each.unrecorded else each.used.calls
            listing.add(each.run_id, "yes" if each.passed else "no", each.used.turns, calls, cost, why)
        console = Console()
        listing.print(console)
        for line in self._told():
            typer.echo(line)

    def _sums(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "runs": len(self.exports),
            "ended": len(self.done),
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "unrecorded": sum(each.unrecorded for each in self.done),
            "used": _sum([each.used for each in self.done]).model_dump(),
            "recorded": _sum([each.recorded for each in self.done]).model_dump(),
        }

    def _told(self) -> Iterator[str]:
        used, before = _sum([each.used for each in self.done]), _sum([each.recorded for each in self.done])
        left = len(self.exports) - len(self.done)
        rate = f"{self.passed} of {plural(len(self.done), 'run')} passed ({self.pass_rate:.0%})"
        yield f"{rate} with {one_line(self.model)}" + (f"; {left} had not ended" if left else "")
        yield f"used:     {_line(used)}"
        yield f"recorded: {_line(before)}"
        if unrecorded := sum(each.unrecorded for each in self.done):
            yield f"{plural(unrecorded, 'call')} had no recorded result; the model was told so, and nothing was called"


def _sum(used: Sequence[Used]) -> Used:
    known = [each.usd for each in used]
    return Used(
        turns=sum(each.turns for each in used),
        calls=sum(each.calls for each in used),
        input_tokens=sum(each.input_tokens for each in used),
        output_tokens=sum(each.output_tokens for each in used),
        usd=None if None in known else sum(usd for usd in known if usd is not None),
    )


def _line(used: Used) -> str:
    cost = "price unknown (TOOLFLEET_PRICES)" if used.usd is None else dollars(used.usd)
    tokens = f"{plural(used.input_tokens, 'token')} in, {used.output_tokens} out"
    return f"{cost}, {tokens}, {plural(used.calls, 'call')}, {plural(used.turns, 'turn')}"
