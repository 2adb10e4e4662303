"""Tools for tests of patience: each enters a stage, so that a test sees every start."""

from __future__ import annotations

from typing import Any

from fleet_tools import _play
from pydantic import SecretStr

from toolfleet import Submitted, tool


@tool(patience_s=0.2)
async def play_impatiently(stage: str) -> Any:
    """Do as the stage says; counts as slow soon."""
    return await _play(stage)


@tool(patience_s=60)
async def play_patiently(stage: str) -> Any:
    """Do as the stage says; waited for."""
    return await _play(stage)


@tool(requires_approval=True)
async def play_with_approval(stage: str) -> Any:
    """Do as the stage says, once a person has allowed it."""
    return await _play(stage)


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once a person has allowed it."""
    return f"paid {amount}"


@tool(requires_approval=True)
async def unlock(word: SecretStr, door: str = "front") -> str:
    """Unlock a door with a word, once a person has allowed it."""
    return f"{door} door, {len(word.get_secret_value())} letters"


@tool(patience_s=60)
async def elsewhere(job: str) -> Submitted:
    """Start a job that only a callback ends."""
    return Submitted(external_id=job)
