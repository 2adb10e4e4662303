"""The command's front door: its subcommands, and errors as one clear line instead of a traceback."""

from __future__ import annotations

import logging
import signal
import sys
from importlib import metadata
from types import FrameType
from typing import Annotated, NoReturn

import typer

from toolfleet.errors import ToolfleetError
from toolfleet.exit_status import ExitStatus, status_of
from toolfleet.logs import configure_logs
from toolfleet.orchestrator.doors.cli import (
    batch,
    calls,
    dead,
    demo,
    flower,
    keys,
    mcp,
    orchestrator,
    run,
    runs,
    serve,
    tools,
    up,
    worker,
)
from toolfleet.orchestrator.doors.cli.wording import harmless

app = typer.Typer(
    help="Runs the tool calls of LLM agents on a fleet of Celery workers.",
    epilog="Exit status: 0 done, 1 an error said in one line, 2 wrong usage, 78 a wrong setting, 130 cut short by "
    "Ctrl-C, 143 by SIGTERM.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(epilog="Example: toolfleet demo")(demo.demo)
app.command(epilog='Example: toolfleet run "What is the square root of 2?" --tools toolfleet.workers.packs.arithmetic')(
    run.run
)
app.command(epilog="Example: toolfleet batch in.jsonl out.jsonl --concurrency 200")(batch.batch)
app.command(epilog="Example: toolfleet up --tools my_package.my_tools --io 2")(up.up)
app.command(epilog="Examples: toolfleet orchestrator   ·   toolfleet orchestrator --check")(orchestrator.orchestrator)
app.command(epilog="Example: toolfleet tools --json")(tools.tools)
app.command(epilog="Example: toolfleet mcp --tools my_package.my_tools")(mcp.mcp)
app.command(epilog="Example: toolfleet serve --port 8000")(serve.serve)
app.add_typer(keys.app, name="keys")
app.add_typer(runs.app, name="runs")
app.add_typer(calls.app, name="calls")
app.add_typer(dead.app, name="dead")
app.command(epilog="Example: toolfleet flower --port 5555")(flower.flower)
app.command(context_settings=worker.CONTEXT_SETTINGS, add_help_option=False)(worker.worker)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # as the option's value comes
    if wanted:
        typer.echo(f"toolfleet {metadata.version('toolfleet')}")
        raise typer.Exit


@app.callback()
def toolfleet(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version and leave."),
    ] = False,
) -> None:
    """Runs the tool calls of LLM agents on a fleet of Celery workers."""
    del version  # printed before a command was looked for


def main() -> None:
    """Run the command; `toolfleet.exit_status` says how it ends."""
    # Containers stop us with SIGTERM, a closed terminal with SIGHUP: clean up for them as for Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _as_ctrl_c)
    configure_logs("error")
    # What asyncio says about futures that nobody awaits any more after Ctrl-C is nothing a user could act on.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        app(prog_name="toolfleet")
    except ToolfleetError as error:
        typer.secho(f"toolfleet: {harmless(str(error))}", err=True, fg="red")
        sys.exit(status_of(error))
    except KeyboardInterrupt:  # after the command has ended
        _leave_stopped()
    except SystemExit as end:
        if end.code == ExitStatus.INTERRUPTED:
            _leave_stopped()
        raise


_received: list[int] = []
"""The signals that this process was stopped with, other than Ctrl-C's own."""


def _leave_stopped() -> NoReturn:
    typer.secho("toolfleet: stopped", err=True)
    sys.exit(ExitStatus(128 + _received[0]) if _received else ExitStatus.INTERRUPTED)


def _as_ctrl_c(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background jobs
        raise KeyboardInterrupt
    # Through SIGINT's own handler: asyncio has put one there that lets its tasks clean up.
    signal.raise_signal(signal.SIGINT)
