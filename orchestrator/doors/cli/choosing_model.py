"""Which model a command asks: that of --model, of the environment, or the rehearsal model, named as what it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console

from toolfleet.orchestrator.models.environment import MODEL_VARIABLE, model_from_environment
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.models.rehearsal import REHEARSAL_MODEL

REHEARSAL: Final = (
    "[bold]rehearsal model[/] answers: a fixed script behind a real HTTP server. The workers, the queue and the "
    "tools are real."
)

UNASKED: Final = "No model is set (OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY), so "


@asynccontextmanager
async def chosen_model(console: Console, named: str | None = None) -> AsyncIterator[ChatModel]:
    """Yield the model of this name, or the one that the environment selects. Raises InvalidSettings."""
    if model := model_from_environment(named=named):
        console.print(f"[dim]model: {model.name}[/]", soft_wrap=True)
        yield model
        return
    console.print(rehearsal_note(named), soft_wrap=not console.is_terminal)
    from toolfleet.orchestrator.models.rehearsal import rehearsal_model  # noqa: PLC0415  # loads an HTTP server

    yield rehearsal_model()


def name_of_model(named: str | None = None) -> str:
    """Return what orchestrators with this option and environment call their model. Raises InvalidSettings.

    For a command that is about to start workers: a model that cannot be asked is said first.
    """
    return asyncio.run(model_name(named))


async def model_name(named: str | None = None) -> str:
    """Return the same as `name_of_model`, on a running loop."""
    if (model := model_from_environment(named=named)) is None:
        return REHEARSAL_MODEL
    await model.aclose()
    return model.name


def rehearsal_note(named: str | None = None) -> str:
    """Return what is said where the rehearsal model answers."""
    asked_for = named is not None or bool(os.environ.get(MODEL_VARIABLE))
    return f"A {REHEARSAL}" if asked_for else f"{UNASKED}a {REHEARSAL}"
