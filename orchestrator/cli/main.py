"""The command's front door: its subcommands, and errors as one clear line instead of a traceback."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import Final

import typer

from orchestrator.cli import (
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
from orchestrator.cli.wording import harmless
from toolfleet.errors import ToolfleetError
from toolfleet.logs import configure_logs

STOPPED: Final = 128 + signal.SIGINT

app = typer.Typer(
    help="Runs the tool calls of LLM agents on a fleet of Celery workers.",
    epilog="Exit status: 0 done, 1 an error said in one line, 2 wrong usage, 130 stopped by Ctrl-C or SIGTERM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(epilog="Example: toolfleet demo")(demo.demo)
app.command(epilog='Example: toolfleet run "What is the square root of 2?" --tools workers.packs.arithmetic')(run.run)
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


def main() -> None:
    """Run the command. Exit status: 0 done, 1 a clear error, 2 wrong usage, 130 stopped by Ctrl-C or SIGTERM."""
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
        sys.exit(1)
    except SystemExit as end:
        if end.code == STOPPED:
            typer.secho("toolfleet: stopped", err=True)
        raise


def _as_ctrl_c(_number: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background jobs
        raise KeyboardInterrupt
    # Through SIGINT's own handler: asyncio has put one there that lets its tasks clean up.
    signal.raise_signal(signal.SIGINT)
