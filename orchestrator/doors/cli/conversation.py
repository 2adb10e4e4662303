"""One question to its answer on the terminal: which model answers, what is shown meanwhile, what is printed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from toolfleet.calls import Failed
from toolfleet.errors import NoToolsFound, ToolfleetError
from toolfleet.event_loop import run_service
from toolfleet.local.fleet import REDIS_VARIABLE
from toolfleet.messages import Message
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.assistants.assistant import RunFailed
from toolfleet.orchestrator.doors.cli.approving import deciding
from toolfleet.orchestrator.doors.cli.choosing_model import chosen_model, model_name
from toolfleet.orchestrator.doors.cli.progress import showing_progress
from toolfleet.orchestrator.doors.cli.sessions import open_acting_session
from toolfleet.orchestrator.doors.cli.telling import warn
from toolfleet.orchestrator.doors.cli.wording import plural
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import RunBegan, RunEnded
from toolfleet.orchestrator.run.value import Run
from toolfleet.settings import Settings
from toolfleet.terminal import harmless, harmless_json

SECRET_VARIABLE: Final = "TOOLFLEET_SECRET"  # noqa: S105  # a variable's name

CANCELLED_WITHIN_S: Final = 3.0
"""How long Ctrl-C waits to say that the run is cancelled."""


def converse(
    question: str | Sequence[Message],
    settings: Settings,
    console: Console,
    options: RunOptions,
    *,
    model: str | None = None,
    as_json: bool = False,
    is_private: bool = False,
) -> None:
    """Run one conversation, show its progress on the console and print its answer, or as JSON the whole run.

    A call that waits for approval is asked about on a terminal. `is_private`: other commands do not find this fleet by
    themselves.

    Raises RunFailed with the reason when there is no answer, and NoToolsFound when no live worker offers a tool.
    """
    elsewhere = _where(settings) if is_private else {}
    run = run_service(_ask(question, settings, console, options, elsewhere, model=model))
    if as_json:
        sys.stdout.write(harmless_json(run.model_dump_json(indent=2)) + "\n")
    if run.state is not State.DONE:
        raise RunFailed(run)
    if not as_json:
        _print_answer(run, console)


def _where(settings: Settings) -> dict[str, str]:
    """Return how another command finds a private fleet, whose secret is worth nothing when the fleet is gone."""
    return {REDIS_VARIABLE: settings.redis_url, SECRET_VARIABLE: settings.secret.get_secret_value()}


def detach(
    question: str | Sequence[Message], settings: Settings, options: RunOptions, *, model: str | None = None
) -> str:
    """Begin a run that an orchestrator with this model, or the environment's, works on, and return its id at once.

    Raises NoToolsFound when no live worker offers a tool, UnknownTool.
    """
    return asyncio.run(_submit(question, settings, options, named=model))


async def _ask(
    question: str | Sequence[Message],
    settings: Settings,
    console: Console,
    options: RunOptions,
    elsewhere: Mapping[str, str],
    *,
    model: str | None,
) -> Run:
    async with (
        chosen_model(console, model) as chosen,
        # The runs of others are for those who stay.
        Orchestrator(chosen, settings=settings, adopts=False) as orchestrator,
    ):
        await must_offer_tools(orchestrator)
        run_id = ""
        try:
            with showing_progress(console) as shown:
                async with deciding(orchestrator, console, shown.paused, elsewhere=elsewhere) as heed:
                    async for event in orchestrator.stream(question, **options):
                        shown.show(event)
                        heed(event)
                        if isinstance(event, RunBegan):
                            run_id = event.run_id
                        elif isinstance(event, RunEnded):
                            return event.run
        except asyncio.CancelledError:
            if run_id:
                await _say_how_it_ended(orchestrator, run_id)
            raise
    raise AssertionError("a stream ends with RunEnded")


async def must_offer_tools(orchestrator: Orchestrator) -> None:
    """Raise NoToolsFound when no live worker offers a tool: the model would answer without, and nobody would know."""
    if not await orchestrator.catalog.offered():
        raise NoToolsFound(
            "no live worker offers a tool: start some with `toolfleet up`, or name a module with --tools, "
            "for example --tools toolfleet.workers.packs.arithmetic"
        )


async def _say_how_it_ended(orchestrator: Orchestrator, run_id: str) -> None:
    """Say how a run ended after Ctrl-C: it is cancelled because nobody waits for it, which takes a moment."""
    try:
        async with asyncio.timeout(CANCELLED_WITHIN_S):
            run = await orchestrator.wait(run_id)
    except (TimeoutError, ToolfleetError):
        warn(f"run {run_id} is not cancelled yet: toolfleet runs show {run_id}")
    else:
        warn(f"run {run_id} {run.state}")


async def _submit(
    question: str | Sequence[Message], settings: Settings, options: RunOptions, *, named: str | None
) -> str:
    model = await model_name(named)
    async with open_acting_session(settings) as (session, orchestrator):
        await must_offer_tools(orchestrator)
        run_id = await orchestrator.submit(question, model=model, **options)
        await session.warn_unless_somebody_goes_on(model)
    return run_id


def _print_answer(run: Run, console: Console) -> None:
    console.print()
    # Not wrapped where no person reads: a line break in the middle of a fact is hard to search for.
    console.print(Text(harmless(run.answer or run.refusal or "")), soft_wrap=not console.is_terminal)
    if run.incomplete is not None:
        warn(run.incomplete.told)  # the words of a refusal are printed above
    failed = sum(isinstance(call.late_result or call.result, Failed) for call in run.calls)
    tokens = f"{plural(run.usage.input_tokens, 'token')} in, {run.usage.output_tokens} out"
    counted = f"{plural(run.turn, 'turn')}, {plural(len(run.calls), 'call')} ({failed} failed), {tokens}"
    console.print(Text(f"\nrun {run.run_id}: {counted}", "dim"), soft_wrap=True)
