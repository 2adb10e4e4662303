"""`toolfleet run`: one question to its answer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toolfleet.local.fleet import LocalFleet, redis_or_embedded
from toolfleet.orchestrator.doors.cli.choosing_model import ModelOption, name_of_model
from toolfleet.orchestrator.doors.cli.conversation import converse, detach
from toolfleet.orchestrator.doors.cli.images import with_images
from toolfleet.orchestrator.doors.cli.run_options import takes_run_options
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.options import RunOptions


@takes_run_options
def run(
    question: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    *,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", help="A module with tools: workers for it are started, and stopped afterwards."),
    ] = None,
    model: ModelOption = None,
    detached: Annotated[
        bool, typer.Option("--detach", help="Print the run's id and return; `toolfleet orchestrator` works on it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole run as JSON.")] = False,
    image: Annotated[
        list[Path] | None,
        typer.Option("--image", help="A PNG, JPEG, GIF or WebP file to show to the model; may be given again."),
    ] = None,
    options: RunOptions,
) -> None:
    """Ask one question and print the answer. Ctrl-C cancels the run, and its calls on the workers.

    With --tools a fleet is started for this one question, on a server of its own. Without, the fleet that runs already
    is used: that of `toolfleet up` on this machine, or the one at TOOLFLEET_REDIS_URL. Without --model, OPENAI_API_KEY,
    OPENAI_BASE_URL or ANTHROPIC_API_KEY select the model; without any, a rehearsal model answers and says so.

    A call of one of the --client-tools ends the run, and stands in its --json for you to answer.

    A call that waits for approval is asked about on a terminal. Elsewhere the command says how to approve it, and
    waits.
    """
    if detached and tools:
        raise typer.BadParameter("--detach needs a fleet that stays (`toolfleet up`); that of --tools would go at once")
    name_of_model(model)  # said before workers are started, if it cannot be asked
    console = Console(stderr=as_json)
    asked = with_images(sys.stdin.read() if question == "-" else question, image or ())
    with ExitStack() as stack:
        if tools:
            with console.status("starting workers …"):
                settings = stack.enter_context(LocalFleet(tools)).settings
        else:
            settings = stack.enter_context(redis_or_embedded())
        if detached:
            run_id = detach(asked, settings, options, model=model)
            if as_json:
                print_json({"run_id": run_id})
            else:
                typer.echo(run_id)
            return
        converse(asked, settings, console, options, model=model, as_json=as_json, is_private=bool(tools))
