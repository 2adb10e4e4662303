"""One question to its answer on the terminal: which model answers, what is shown meanwhile, what is printed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from rich.console import Console

from orchestrator.api import Orchestrator
from orchestrator.cli.progress import showing_progress
from orchestrator.events import RunEnded
from orchestrator.models.environment import model_from_environment
from orchestrator.models.openai import OpenAIChat
from orchestrator.models.protocol import ChatModel
from orchestrator.models.rehearsal import REHEARSAL_MODEL, RehearsalServer
from orchestrator.run import Run, State
from toolfleet.errors import NoToolsFound, ToolfleetError
from toolfleet.settings import Settings

REHEARSAL_NOTE = (
    "No model is set (OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY), so a [bold]rehearsal model[/] answers: "
    "a fixed script behind a real HTTP server. The workers, the queue and the tools are real."
)


class RunFailed(ToolfleetError):
    """The run ended without an answer; the text is its reason."""


def converse(
    question: str,
    settings: Settings,
    console: Console,
    *,
    tools: Sequence[str] | None = None,
    slow: Literal["wait", "handle"] = "wait",
    timeout_s: float | None = None,
    as_json: bool = False,
) -> None:
    """Run one conversation, show its progress on the console and print its answer, or as JSON the whole run.

    Raises RunFailed with the reason when there is no answer, and NoToolsFound when no live worker offers a tool.
    """
    run = asyncio.run(_ask(question, settings, console, tools=tools, slow=slow, timeout_s=timeout_s))
    if as_json:
        sys.stdout.write(run.model_dump_json(indent=2) + "\n")
    if run.state is not State.DONE:
        raise RunFailed(f"run {run.run_id} {run.state}: {run.reason}")
    if not as_json:
        _print_answer(run, console)


async def _ask(
    question: str,
    settings: Settings,
    console: Console,
    *,
    tools: Sequence[str] | None,
    slow: Literal["wait", "handle"],
    timeout_s: float | None,
) -> Run:
    async with chosen_model(console) as model, Orchestrator(model, settings=settings) as orchestrator:
        if not await orchestrator.catalog.offered():
            raise NoToolsFound(
                "no live worker offers a tool: start some with `toolfleet up`, or name a module with --tools, "
                "for example --tools workers.packs.arithmetic"
            )
        with showing_progress(console) as show:
            async for event in orchestrator.stream(question, tools=tools, slow=slow, timeout_s=timeout_s):
                show(event)
                if isinstance(event, RunEnded):
                    return event.run
    raise AssertionError("a stream ends with RunEnded")


def _print_answer(run: Run, console: Console) -> None:
    console.print()
    # Not wrapped where no person reads: a line break in the middle of a fact is hard to search for.
    console.print(run.answer, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    failed = sum(1 for call in run.calls if call.result and call.result.type == "failed")
    console.print(
        f"\n[dim]run {run.run_id}: {run.turn} turns, {len(run.calls)} calls ({failed} failed), "
        f"{run.usage.input_tokens} tokens in, {run.usage.output_tokens} out[/]",
        soft_wrap=True,
    )


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
