"""Tools for tests of runs that people steer: each enters a stage, so that a test sees every start."""

from __future__ import annotations

import json
from typing import Any

from fleet_tools import _play, add, wait
from pydantic import SecretStr

from toolfleet import tool
from toolfleet.handwritten import hand_written

__all__ = ["add", "wait"]


@tool(background="model")
async def research(stage: str, words: list[str] | None = None) -> Any:
    """Do as the stage says; the model says whether it waits for it."""
    return f"{await _play(stage)} {words or ''}".strip()


@tool
async def study(stage: str) -> Any:
    """Do as the stage says; waited for, and never twice."""
    return await _play(stage)


@tool(patience_s=0.1)
async def study_slowly(stage: str) -> Any:
    """Do as the stage says; counts as slow soon."""
    return await _play(stage)


@tool(requires_approval=True)
async def pay(amount: float, stage: str = "") -> str:
    """Pay, once a person has allowed it."""
    if stage:
        await _play(stage)
    return f"paid {amount}"


@tool(requires_approval=True)
async def unlock(word: SecretStr, door: str = "front") -> str:
    """Unlock a door with a word, once a person has allowed it."""
    return f"{door} door, {len(word.get_secret_value())} letters"


async def _echoed(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


anything = hand_written(
    {
        "name": "anything",
        "description": "Give back the arguments, whatever they are.",
        "input_schema": {"type": "object", "additionalProperties": True},
        "read_only": True,
        "background": "model",
    },
    _echoed,
)


signed = hand_written(
    {
        "name": "signed",
        "description": "Give back what was signed.",
        "input_schema": {"type": "object", "additionalProperties": True},
        "requires_approval": True,
    },
    _echoed,
)
