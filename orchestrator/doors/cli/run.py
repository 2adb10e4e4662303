"""`toolfleet run`: one question to its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.cli.run_options import takes_run_options
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
    # Half a second, which --help and what is misspelt do without.
    from toolfleet.orchestrator.doors.cli.one_question import ask  # noqa: PLC0415  # as said

    ask(question, options, tools=tools or (), images=image or (), model=model, detached=detached, as_json=as_json)
