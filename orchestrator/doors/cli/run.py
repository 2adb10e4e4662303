"""`toolfleet run`: one question to its answer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from toolfleet.local.fleet import LocalFleet, redis_or_embedded
from toolfleet.orchestrator.doors.cli.choosing_model import ModelOption, name_of_model
from toolfleet.orchestrator.doors.cli.conversation import converse, detach
from toolfleet.orchestrator.doors.cli.telling import print_json
from toolfleet.orchestrator.run.limits import Limits


class Slow(StrEnum):
    """What a run does with long-running tools."""

    WAIT = "wait"
    HANDLE = "handle"


def run(
    question: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    *,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", help="A module with tools: workers for it are started, and stopped afterwards."),
    ] = None,
    offer: Annotated[
        list[str] | None, typer.Option("--offer", help="Offer only this tool; may be given again.")
    ] = None,
    slow: Annotated[Slow, typer.Option(help="Wait for long-running tools, or give the model a handle.")] = Slow.WAIT,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", min=0.1, max=1e7, help="Seconds until calls expire.")
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option("--max-calls", min=1, help="Calls that the run may make; 150, and 40 of one tool, by default."),
    ] = None,
    model: ModelOption = None,
    detached: Annotated[
        bool, typer.Option("--detach", help="Print the run's id and return; `toolfleet orchestrator` works on it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole run as JSON.")] = False,
) -> None:
    """Ask one question and print the answer. Ctrl-C cancels the run, and its calls on the workers.

    With --tools a fleet is started for this one question, on a server of its own. Without, the fleet that runs already
    is used: that of `toolfleet up` on this machine, or the one at TOOLFLEET_REDIS_URL. Without --model, OPENAI_API_KEY,
    OPENAI_BASE_URL or ANTHROPIC_API_KEY select the model; without any, a rehearsal model answers and says so.

    A call that waits for approval is asked about on a terminal. Elsewhere the command says how to approve it, and
    waits.
    """
    if detached and tools:
        raise typer.BadParameter("--detach needs a fleet that stays (`toolfleet up`); that of --tools would go at once")
    name_of_model(model)  # said before workers are started, if it cannot be asked
    limits = None if max_calls is None else Limits(calls=max_calls, calls_per_tool=max_calls)
    console = Console(stderr=as_json)
    asked = sys.stdin.read() if question == "-" else question
    with ExitStack() as stack:
        if tools:
            with console.status("starting workers …"):
                settings = stack.enter_context(LocalFleet(tools)).settings
        else:
            settings = stack.enter_context(redis_or_embedded())
        if detached:
            run_id = detach(
                asked, settings, tools=offer, slow=slow.value, timeout_s=timeout_s, limits=limits, model=model
            )
            if as_json:
                print_json({"run_id": run_id})
            else:
                typer.echo(run_id)
            return
        converse(
            asked,
            settings,
            console,
            tools=offer,
            slow=slow.value,
            timeout_s=timeout_s,
            limits=limits,
            model=model,
            as_json=as_json,
            is_private=bool(tools),
        )
