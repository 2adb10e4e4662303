"""Tools that ask people, sleep, yield, may go on in the background, and have versions, for the faults of steered runs.

What they do stands in the ledger of the others; what more there is to judge, as marks beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Final

from tests.faults.fault_tools import _enter, _work, again, once
from toolfleet import Context, ToolError, tool

__all__ = ["again", "once"]

VERSION_VARIABLE: Final = "FAULTS_VERSION"
VERSION: Final = int(os.environ.get(VERSION_VARIABLE, "1"))

PIECES: Final = 5


def answered(nonce: str, word: str) -> str:
    """How the ledger says that a tool went on with an answer."""
    return f"answered:{nonce}:{word}"


def ran_as(nonce: str, version: object) -> str:
    """How the ledger says which version of a tool has run."""
    return f"version:{nonce}:{version}"


# --- that ask --------------------------------------------------------------------------------------------------------


async def _ask(nonce: str, ctx: Context) -> str:
    word = await ctx.ask(nonce)
    _enter(answered(nonce, word), ctx)
    _enter(nonce, ctx)
    return f"{nonce} {word}"


@tool
async def ask_once(nonce: str, seconds: float, ctx: Context) -> str:
    """Ask, and wait for the answer in its place."""
    return await _ask(nonce, ctx)


@tool(idempotent=True)
async def ask_again(nonce: str, seconds: float, ctx: Context) -> str:
    """The same, for one that may be repeated."""
    return await _ask(nonce, ctx)


@tool
async def ask_once_elsewhere(nonce: str, seconds: float, ctx: Context) -> str:
    """Ask, and wait where no worker has it."""
    ctx.checkpoint("begun")
    return await _ask(nonce, ctx)


@tool(idempotent=True)
async def ask_again_elsewhere(nonce: str, seconds: float, ctx: Context) -> str:
    """The same, for one that may be repeated."""
    ctx.checkpoint("begun")
    return await _ask(nonce, ctx)


# --- that sleep ------------------------------------------------------------------------------------------------------


async def _sleep(nonce: str, seconds: float, ctx: Context) -> str:
    if ctx.last_checkpoint is None:
        ctx.checkpoint(time.time())
    await ctx.sleep(seconds)
    _enter(nonce, ctx)
    # Where this attempt began before the sleep, it knows no checkpoint and has slept in one go.
    return f"{nonce} {time.time() - ctx.last_checkpoint if ctx.last_checkpoint else seconds}"


@tool
async def sleep_once(nonce: str, seconds: float, ctx: Context) -> str:
    """Sleep where no worker has it, then have an effect that must not happen twice."""
    return await _sleep(nonce, seconds, ctx)


@tool(idempotent=True)
async def sleep_again(nonce: str, seconds: float, ctx: Context) -> str:
    """The same, for an effect that may happen twice."""
    return await _sleep(nonce, seconds, ctx)


# --- that yield ------------------------------------------------------------------------------------------------------


async def _recite(nonce: str, seconds: float, ctx: Context) -> AsyncIterator[str]:
    yield nonce
    for number in range(PIECES):
        await asyncio.sleep(seconds / PIECES)
        if number == PIECES // 2:
            _enter(nonce, ctx)
        yield f" {ctx.attempt}.{number}"


@tool
async def recite_once(nonce: str, seconds: float, ctx: Context) -> AsyncIterator[str]:
    """Yield pieces that say of which attempt they are, with an effect among them that must not happen twice."""
    async for piece in _recite(nonce, seconds, ctx):
        yield piece


@tool(idempotent=True)
async def recite_again(nonce: str, seconds: float, ctx: Context) -> AsyncIterator[str]:
    """The same, for an effect that may happen twice."""
    async for piece in _recite(nonce, seconds, ctx):
        yield piece


# --- others ----------------------------------------------------------------------------------------------------------


@tool(background="model")
async def in_background(nonce: str, seconds: float, ctx: Context) -> str:
    """Have an effect that must not happen twice, while the model goes on."""
    return await _work(nonce, seconds, ctx)


@tool
async def tick(nonce: str, seconds: float, ctx: Context) -> str:
    """Have an effect under the call's own id: every run of a schedule is asked the same."""
    return await _work(ctx.call_id, seconds, ctx)


@tool(version=VERSION)
async def versioned(nonce: str, seconds: float, ctx: Context) -> str:
    """Say which version it is, and have an effect that must not happen twice."""
    _enter(ran_as(nonce, VERSION), ctx)
    return await _work(nonce, seconds, ctx)


@tool(version=VERSION, idempotent=True)
async def versioned_again(nonce: str, seconds: float, ctx: Context) -> str:
    """The same, for an effect that may happen twice."""
    _enter(ran_as(nonce, VERSION), ctx)
    return await _work(nonce, seconds, ctx)


@tool(version=VERSION)
async def shaky(nonce: str, seconds: float, ctx: Context) -> str:
    """Fail from the second version on."""
    _enter(nonce, ctx)
    if VERSION > 1:
        raise ToolError("this version is broken")
    return nonce
