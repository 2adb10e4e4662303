"""Tools that write down what they were called with: the ledger says what has happened, whatever a message says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from toolfleet import Context, hand_written, tool


def _enter(ctx: Context) -> None:
    with Path(os.environ["ODD_LEDGER"]).open("a") as ledger:
        ledger.write(f"{ctx.call_id}\n")


@tool
async def note(ctx: Context, text: str = "", count: int = 0) -> str:
    """Note something."""
    _enter(ctx)
    return f"noted {text!r}"


@tool
async def keep(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
    """Keep values, and say them."""
    _enter(ctx)
    return values


@tool
async def whisper(ctx: Context, word: SecretStr, to: list[str] | None = None) -> str:
    """Whisper a word."""
    _enter(ctx)
    return "whispered"


def _anything(arguments: dict[str, Any], ctx: Context) -> Any:
    _enter(ctx)
    return arguments


anything = hand_written(
    {"name": "anything", "description": "Take anything.", "input_schema": {"type": "object"}, "queue": "io"}, _anything
)
