"""`toolfleet demo`: one real conversation on real workers, from nothing to the answer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console

from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.cli.choosing_model import name_of_model
from toolfleet.orchestrator.doors.cli.conversation import converse
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.limits import Limits

TOOLS = "toolfleet.workers.packs.stdlib"

QUESTION = (
    "Which five modules of the standard library define the most functions, which one has the longest function, "
    "and what share of functions has a docstring?"
)

NO_LIMITS = Limits(calls=None, calls_per_tool=None)
"""The question asks for a call for each module of the library at once."""


def demo(
    *,
    model: ModelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole run as JSON.")] = False,
) -> None:
    """Ask one question about Python's standard library and watch its tool calls run on real workers.

    Starts an embedded server and three worker processes of its own, and stops them afterwards. Needs no key: without
    OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY a rehearsal model asks for the same calls.
    """
    name_of_model(model)  # said before workers are started, if it cannot be asked
    console = Console(stderr=as_json)
    console.print(f"[bold]{QUESTION}[/]\n", soft_wrap=True)
    with ExitStack() as stack:
        with console.status("starting an embedded server and three workers …"):
            fleet = stack.enter_context(LocalFleet([TOOLS]))
        options: RunOptions = {"slow": "handle", "limits": NO_LIMITS}
        converse(QUESTION, fleet.settings, console, options, model=model, as_json=as_json)
