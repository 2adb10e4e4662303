"""Tools whose workers get lost on the way, and the functions that find out what became of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from fleet_tools import _play, _play_blocking
from pydantic import BaseModel, SecretStr

from toolfleet import Context, Failed, FailureKind, Returned, current_context, tool
from toolfleet.calls import NotDone, ToolCall


@tool
async def pay(stage: str, verdict: str) -> Any:
    """Pay as the stage says; `verdict` is what reconcile will find out."""
    return await _play(stage)


@pay.reconcile
async def was_it_paid(call: ToolCall, ctx: Context) -> Any:
    return found_out(call, ctx)


@tool(queue="io")
def pay_on_thread(stage: str, verdict: str) -> Any:
    """The same, from a plain function."""
    return _play_blocking(stage)


@pay_on_thread.reconcile
def was_it_paid_on_thread(call: ToolCall, ctx: Context) -> Any:
    return found_out(call, ctx)


@tool(queue="cpu")
def pay_in_process(stage: str, verdict: str) -> Any:
    """The same, in a process of its own."""
    return _play_blocking(stage)


@pay_in_process.reconcile
def was_it_paid_in_process(call: ToolCall, ctx: Context) -> Any:
    return found_out(call, ctx)


def found_out(call: ToolCall, ctx: Context) -> Any:
    assert current_context() is ctx
    match json.loads(call.arguments)["verdict"]:
        case "paid":
            return Returned(content=f"paid under {ctx.idempotency_key}, as attempt {ctx.attempt} found")
        case "bounced":
            return Failed(kind=FailureKind.ERROR, message="the bank said no")
        case "not done":
            return NotDone()
        case "broken":
            raise OSError("the bank is closed")
        case "unsure":
            return "maybe"
        case "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        case path:  # deadly once, which the file remembers
            if Path(path).exists():
                return NotDone()
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return None


# --- checkpoints -----------------------------------------------------------------------------------------------------


@tool(idempotent=True)
async def count_to(stage: str, goal: int) -> Any:
    """Count up, and remember how far it has come."""
    return await _counted(stage, goal)


@tool(idempotent=True, long_running=True)
async def count_for_long(stage: str, goal: int) -> Any:
    """The same, where an orderly stop counts as well."""
    return await _counted(stage, goal)


@tool(idempotent=True, queue="io")
def count_on_thread(stage: str, goal: int) -> Any:
    """The same, from a plain function."""
    return _counted_blocking(stage, goal)


@tool(idempotent=True, queue="cpu")
def count_in_process(stage: str, goal: int) -> Any:
    """The same, in a process of its own."""
    return _counted_blocking(stage, goal)


async def _counted(stage: str, goal: int) -> Any:
    context = current_context()
    begun_at = context.last_checkpoint or {"at": 0}
    if begun_at["at"] == 0:
        for at in range(1, goal + 1):
            context.checkpoint({"at": at})
    return [context.idempotency_key, begun_at, await _play(stage)]


def _counted_blocking(stage: str, goal: int) -> Any:
    context = current_context()
    begun_at = context.last_checkpoint or {"at": 0}
    if begun_at["at"] == 0:
        for at in range(1, goal + 1):
            context.checkpoint({"at": at})
    return [context.idempotency_key, begun_at, _play_blocking(stage)]


@tool(read_only=True)
async def remember_too_much() -> None:
    """Keep what is no checkpoint."""
    current_context().checkpoint("x" * 70_000)


# --- secrets ---------------------------------------------------------------------------------------------------------


class Login(BaseModel):
    user: str
    password: SecretStr


@tool(read_only=True, queue="io")
async def log_in(stage: str, login: Login) -> Any:
    """Keep a secret."""
    context = current_context()
    context.progress(0.5, f"{context} as {login}")
    context.checkpoint({"user": login.user})
    return await _play(stage)


@tool(read_only=True, queue="io")
def log_in_and_die(login: Login) -> None:
    """Keep a secret to the end of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


@tool(read_only=True, queue="io")
async def log_in_and_fail(login: Login) -> None:
    """Keep a secret in a failure."""
    raise ValueError(f"nobody is {login}")
