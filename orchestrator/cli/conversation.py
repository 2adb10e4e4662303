"""One question to its answer on the terminal: which model answers, what is shown meanwhile, what is printed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

from orchestrator.api import Orchestrator
from orchestrator.assistant import RunFailed
from orchestrator.cli.approving import deciding
from orchestrator.cli.progress import showing_progress
from orchestrator.cli.telling import desk, warn
from orchestrator.cli.wording import harmless, plural
from orchestrator.events import RunBegan, RunEnded
from orchestrator.history import Slow
from orchestrator.limits import Limits
from orchestrator.models.environment import model_from_environment
from orchestrator.models.openai import OpenAIChat
from orchestrator.models.protocol import ChatModel
from orchestrator.models.rehearsal import REHEARSAL_MODEL, RehearsalServer
from orchestrator.options import RunOptions
from orchestrator.run import Run
from orchestrator.states import State
from toolfleet.errors import NoToolsFound, ToolfleetError
from toolfleet.settings import Settings

REHEARSAL_NOTE = (
    "No model is set (OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY), so a [bold]rehearsal model[/] answers: "
    "a fixed script behind a real HTTP server. The workers, the queue and the tools are real."
)

REDIS_VARIABLE: Final = "TOOLFLEET_REDIS_URL"

CANCELLED_WITHIN_S: Final = 3.0
"""How long Ctrl-C waits to say that the run is cancelled."""


def converse(
    question: str,
    settings: Settings,
    console: Console,
    *,
    tools: Sequence[str] | None = None,
    slow: Slow = "wait",
    timeout_s: float | None = None,
    limits: Limits | None = None,
    as_json: bool = False,
    is_private: bool = False,
) -> None:
    """Run one conversation, show its progress on the console and print its answer, or as JSON the whole run.

    A call that waits for approval is asked about on a terminal. `is_private`: other commands do not find this fleet by
    themselves.

    Raises RunFailed with the reason when there is no answer, and NoToolsFound when no live worker offers a tool.
    """
    options: RunOptions = {"tools": tools, "slow": slow, "timeout_s": timeout_s, "limits": limits}
    elsewhere = {REDIS_VARIABLE: settings.redis_url} if is_private else {}
    run = asyncio.run(_ask(question, settings, console, options, elsewhere))
    if as_json:
        sys.stdout.write(run.model_dump_json(indent=2) + "\n")
    if run.state is not State.DONE:
        raise RunFailed(run)
    if not as_json:
        _print_answer(run, console)


def detach(
    question: str,
    settings: Settings,
    *,
    tools: Sequence[str] | None = None,
    slow: Slow = "wait",
    timeout_s: float | None = None,
    limits: Limits | None = None,
) -> str:
    """Begin a run that an orchestrator with this environment's model works on, and return its id at once.

    Raises NoToolsFound when no live worker offers a tool, UnknownTool.
    """
    return asyncio.run(_submit(question, settings, tools=tools, slow=slow, timeout_s=timeout_s, limits=limits))


async def _ask(
    question: str, settings: Settings, console: Console, options: RunOptions, elsewhere: Mapping[str, str]
) -> Run:
    async with (
        chosen_model(console) as model,
        # The runs of others are for those who stay.
        Orchestrator(model, settings=settings, adopts=False) as orchestrator,
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
    """Raises NoToolsFound when no live worker offers any: the model would answer without, and nobody would know."""
    if not await orchestrator.catalog.offered():
        raise NoToolsFound(
            "no live worker offers a tool: start some with `toolfleet up`, or name a module with --tools, "
            "for example --tools workers.packs.arithmetic"
        )


async def _say_how_it_ended(orchestrator: Orchestrator, run_id: str) -> None:
    """After Ctrl-C: a run that nobody waits for any more is cancelled, which takes a moment."""
    try:
        async with asyncio.timeout(CANCELLED_WITHIN_S):
            run = await orchestrator.wait(run_id)
    except (TimeoutError, ToolfleetError):
        warn(f"run {run_id} is not cancelled yet: toolfleet runs show {run_id}")
    else:
        warn(f"run {run_id} {run.state}")


async def _submit(
    question: str,
    settings: Settings,
    *,
    tools: Sequence[str] | None,
    slow: Slow,
    timeout_s: float | None,
    limits: Limits | None,
) -> str:
    model = await model_name()
    async with desk(settings) as open_desk, Orchestrator(settings=settings) as orchestrator:
        await must_offer_tools(orchestrator)
        run_id = await orchestrator.submit(
            question, model=model, tools=tools, slow=slow, timeout_s=timeout_s, limits=limits
        )
        await open_desk.warn_unless_somebody_goes_on(model)
    return run_id


def _print_answer(run: Run, console: Console) -> None:
    console.print()
    # Not wrapped where no person reads: a line break in the middle of a fact is hard to search for.
    console.print(Text(harmless(run.answer or "")), soft_wrap=not console.is_terminal)
    failed = sum(1 for call in run.calls if call.result and call.result.type == "failed")
    tokens = f"{plural(run.usage.input_tokens, 'token')} in, {run.usage.output_tokens} out"
    counted = f"{plural(run.turn, 'turn')}, {plural(len(run.calls), 'call')} ({failed} failed), {tokens}"
    console.print(Text(f"\nrun {run.run_id}: {counted}", "dim"), soft_wrap=True)


@asynccontextmanager
async def chosen_model(console: Console) -> AsyncIterator[ChatModel]:
    """The model that the environment selects, or the rehearsal model, named as what it is."""
    if model := model_from_environment():
        console.print(f"[dim]model: {model.name}[/]", soft_wrap=True)
        yield model
        return
    console.print(REHEARSAL_NOTE, soft_wrap=not console.is_terminal)
    async with RehearsalServer() as server:
        yield OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")


async def model_name() -> str:
    """What orchestrators in this environment call their model. Raises InvalidSettings."""
    if (model := model_from_environment()) is None:
        return REHEARSAL_MODEL
    await model.aclose()
    return model.name
