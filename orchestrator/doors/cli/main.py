"""The command's front door: its subcommands, and errors as one clear line instead of a traceback."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib import metadata
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer

from toolfleet.errors import ToolfleetError
from toolfleet.exit_status import ExitStatus, status_of
from toolfleet.orchestrator.doors.cli.lazy_group import Listed, group_of
from toolfleet.terminal import harmless

PASSED_ON: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""The workers' own command reads the rest of the line."""


COMMANDS: Final = {
    "demo": Listed(
        "Ask one question about Python's standard library and watch its tool calls run on real workers.",
        "Example: toolfleet demo",
    ),
    "run": Listed(
        "Ask one question and print the answer. Ctrl-C cancels the run, and its calls on the workers.",
        'Example: toolfleet run "What is the square root of 2?" --tools toolfleet.workers.packs.arithmetic',
    ),
    "batch": Listed(
        "Run one conversation for each line of IN, and write one line for each to OUT.",
        "Example: toolfleet batch in.jsonl out.jsonl --concurrency 200",
    ),
    "batches": Listed(
        "How batches stand: list them, look at one and its runs, cancel it. `toolfleet batch` begins them."
    ),
    "schedule": Listed(
        "Runs that begin by the clock: make a schedule, look, pause, resume, remove, or run one at once."
    ),
    "up": Listed(
        "Run the server, the workers, an orchestrator, the HTTP API and Flower on this machine until Ctrl-C.",
        "Example: toolfleet up --tools my_package.my_tools --io 2",
    ),
    "orchestrator": Listed(
        "Work on runs until SIGTERM or Ctrl-C: begun with `toolfleet run --detach`, or left by others.",
        "Examples: toolfleet orchestrator   ·   toolfleet orchestrator --check",
    ),
    "worker": Listed(
        "Serve the tools of one pool until SIGTERM or Ctrl-C: toolfleet worker --pool io --import my_tools.",
        options={"context_settings": PASSED_ON, "add_help_option": False},
    ),
    "tools": Listed(
        "Show the tools that live workers announce, and who serves them.", "Example: toolfleet tools --json"
    ),
    "watch": Listed(
        "Show how the fleet stands, live: queues, workers, runs, limits, budgets, and what fails. q or Ctrl-C leaves.",
        "Examples: toolfleet watch   ·   toolfleet watch --once   ·   toolfleet watch --json --interval 1",
    ),
    "runs": Listed(
        "Stored runs: list them, look at one, follow it, say something to it, cancel, resume, fork or delete it, "
        "decide about its calls, export and replay it."
    ),
    "eval": Listed(
        "Begin exported runs anew with another model, and count how many come to the right answer.",
        "Example: toolfleet eval runs.jsonl --model gpt-5-mini --min-pass-rate 0.9",
    ),
    "calls": Listed(
        "Calls under way: list them, look at one and its log, cancel it, or complete one that is done elsewhere."
    ),
    "questions": Listed(
        "Show what tools ask people while they run, those first that have waited longest.",
        "Example: toolfleet questions --json",
    ),
    "answer": Listed(
        "Answer what a tool asks while it runs, or decline to. The first answer counts.",
        "Example: toolfleet answer 3f9c.1.0:1 savings",
    ),
    "limits": Listed("How often and how many at once tools may start, and tenants' shares: look, change, pause."),
    "versions": Listed("Versions of tools: which are live, and which share of new runs gets a new one."),
    "dead": Listed("Messages that no worker could handle: list them, look at one, put it back, drop it."),
    "webhooks": Listed(
        "Who is told of what happens to runs: add an endpoint, look at what came of it, send again what was given up.",
        "Example: toolfleet webhooks add https://hooks.example.com/toolfleet --events run.completed,run.failed",
    ),
    "serve": Listed(
        "Serve the page, the HTTP API and the OpenAI-compatible one until Ctrl-C.",
        "Example: toolfleet serve --port 8000",
    ),
    "keys": Listed("Keys for the HTTP API: make one, list them, take one away, print your own."),
    "budget": Listed(
        "What tenants may use up: set a budget, look at one, take one away.",
        "Example: toolfleet budget set acme --usd 20 --per day",
    ),
    "shards": Listed(
        "The Redis servers of a fleet that has several: how each stands; keep new runs away from one.",
        "Example: toolfleet shards drain b --wait",
    ),
    "secret": Listed(
        "Show where each process stands in a change of the secret: accept, sign, drop.",
        "Example: toolfleet secret",
    ),
    "mcp": Listed(
        "Serve the fleet's tools to an MCP host, over standard input and output unless --http is given.",
        "Example: toolfleet mcp --tools my_package.my_tools",
    ),
    "environment": Listed(
        "Serve a self-hosted environment of Anthropic's Managed Agents with the fleet's tools until Ctrl-C.",
        "Examples: toolfleet environment env_01…   ·   toolfleet environment --tools",
    ),
    "flower": Listed(
        "Run Flower until Ctrl-C. TOOLFLEET_FLOWER_AUTH=user:password sets its login; otherwise one is made up.",
        "Example: toolfleet flower --port 5555",
    ),
}
"""Every command of `toolfleet`."""

app = typer.Typer(
    cls=group_of(COMMANDS),
    epilog="Exit status: 0 done, 1 an error said in one line, 2 wrong usage, 78 a wrong setting, 130 cut short by "
    "Ctrl-C, 143 by SIGTERM.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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
    from toolfleet.logs import configure_logs  # noqa: PLC0415  # help needs none

    configure_logs("error")


def main() -> None:
    """Run the command; `toolfleet.exit_status` says how it ends."""
    sys.unraisablehook = _hear_what_was_dropped
    # Containers stop us with SIGTERM, a closed terminal with SIGHUP: clean up for them as for Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _as_ctrl_c)
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


_HEARD_AGAIN_AFTER_S: Final = 0.05


def _hear_what_was_dropped(ignored: sys.UnraisableHookArgs) -> None:
    """Deliver a signal again if it came in code whose exceptions Python drops, such as a finalizer.

    It comes from a thread and a moment later, because an exception that is raised in this hook is dropped as well.
    """
    if not isinstance(ignored.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    number = _received.pop() if _received else signal.SIGINT
    again = threading.Timer(_HEARD_AGAIN_AFTER_S, signal.raise_signal, (number,))  # watched: it has only this to do
    again.daemon = True
    again.start()
