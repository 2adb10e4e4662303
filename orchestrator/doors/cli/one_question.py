"""What `toolfleet run` does: one question to its answer, or to the id of its run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.console import Console

from toolfleet.local.fleet import LocalFleet, redis_or_embedded
from toolfleet.orchestrator.doors.cli.choosing_model import name_of_model
from toolfleet.orchestrator.doors.cli.conversation import converse, detach
from toolfleet.orchestrator.doors.cli.images import with_images
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.options import RunOptions


def ask(
    question: str,
    options: RunOptions,
    *,
    tools: Sequence[str],
    images: Sequence[Path],
    model: str | None,
    detached: bool,
    as_json: bool,
) -> None:
    """Ask a question (`-`: that on standard input) on this user's fleet, or with `tools` on one of its own.

    Prints the answer, or with `detached` the run's id at once. Raises what `converse` and `detach` raise.
    """
    name_of_model(model)  # said before workers are started, if it cannot be asked
    console = Console(stderr=as_json)
    text = sys.stdin.read() if question == "-" else question
    if not (text.strip() or images):
        raise typer.BadParameter("nothing is asked: the question is empty")
    asked = with_images(text, images)
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
