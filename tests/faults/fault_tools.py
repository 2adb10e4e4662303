"""Tools whose every effect is written down where it outlives worker and server, and tools that behave badly.

Served by real workers. Each gives back the nonce it was asked with, so that an answer tells whose it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.faults.limits_ledger import BEGINS, BURST, ENDS, PLACES, PLACES_IN_PROCESSES, RATE_PER_S, note
from toolfleet import Context, tool

LEDGER = "FAULTS_LEDGER"

_hoard: list[bytearray] = []


def _enter(nonce: str, ctx: Context) -> None:
    """The effect: one line, in one write, at the end of the ledger."""
    line = f"{nonce} {ctx.call_id} {ctx.attempt} {os.getpid()}\n".encode()
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, line)
    finally:
        os.close(ledger)


async def _work(nonce: str, seconds: float, ctx: Context) -> str:
    await asyncio.sleep(seconds / 2)
    _enter(nonce, ctx)
    await asyncio.sleep(seconds / 2)
    return nonce


def _block(nonce: str, seconds: float, ctx: Context) -> str:
    time.sleep(seconds / 2)
    _enter(nonce, ctx)
    time.sleep(seconds / 2)
    return nonce


@tool
async def once(nonce: str, seconds: float, ctx: Context) -> str:
    """Has an effect that must not happen twice."""
    return await _work(nonce, seconds, ctx)


@tool(idempotent=True)
async def again(nonce: str, seconds: float, ctx: Context) -> str:
    """Has an effect that may happen twice."""
    return await _work(nonce, seconds, ctx)


@tool(queue="cpu")
def once_in_process(nonce: str, seconds: float, ctx: Context) -> str:
    """The first, in a process."""
    return _block(nonce, seconds, ctx)


@tool(idempotent=True, queue="cpu")
def again_in_process(nonce: str, seconds: float, ctx: Context) -> str:
    """The second, in a process."""
    return _block(nonce, seconds, ctx)


# --- with limits -----------------------------------------------------------------------------------------------------


@contextmanager
def _noted(tool: str, nonce: str) -> Iterator[None]:
    """Have it stand in the ledger of limits when a tool begins and ends."""
    note(os.environ[LEDGER], BEGINS, tool, nonce)
    yield
    note(os.environ[LEDGER], ENDS, tool, nonce)


@tool(idempotent=True, concurrency=PLACES)
async def narrow(nonce: str, seconds: float, ctx: Context) -> str:
    """Have one of few places."""
    with _noted("narrow", nonce):
        return await _work(nonce, seconds, ctx)


@tool(idempotent=True, queue="cpu", concurrency=PLACES_IN_PROCESSES)
def narrow_in_process(nonce: str, seconds: float, ctx: Context) -> str:
    """Have the only place, in a process."""
    with _noted("narrow_in_process", nonce):
        return _block(nonce, seconds, ctx)


@tool(idempotent=True, rate=f"{RATE_PER_S}/s", burst=BURST)
async def rated(nonce: str, seconds: float, ctx: Context) -> str:
    """Begin so often and no more."""
    with _noted("rated", nonce):
        return await _work(nonce, seconds, ctx)


# --- badly behaved ---------------------------------------------------------------------------------------------------


@tool(idempotent=True)
async def poison(nonce: str, ctx: Context) -> str:
    """Kill the worker, each time."""
    _enter(nonce, ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return nonce


@tool(idempotent=True, queue="cpu")
def poison_in_process(nonce: str, ctx: Context) -> str:
    """Kill the process, each time."""
    _enter(nonce, ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return nonce


@tool(queue="cpu")
def leave(nonce: str, ctx: Context) -> str:
    """End the process without a word to anybody."""
    _enter(nonce, ctx)
    os._exit(0)


@tool(queue="cpu")
def segfault(nonce: str, ctx: Context) -> str:
    """Read what is not there."""
    _enter(nonce, ctx)
    ctypes.string_at(0)
    return nonce


@tool(queue="cpu")
def leak(nonce: str, megabytes: int, ctx: Context) -> str:
    """Keep memory for ever."""
    _enter(nonce, ctx)
    _hoard.append(bytearray(megabytes << 20))
    return nonce


@tool
async def block_the_loop(nonce: str, seconds: float, ctx: Context) -> str:
    """Stand in everybody's way, heartbeats included if they came from here."""
    return _block(nonce, seconds, ctx)


@tool
async def enormous(nonce: str, megabytes: int, ctx: Context) -> str:
    """Return far more than anybody wants."""
    _enter(nonce, ctx)
    return nonce + "x" * (megabytes << 20)


@tool(timeout_s=1.0)
async def never(nonce: str, ctx: Context) -> str:
    """Wait for ever."""
    _enter(nonce, ctx)
    await asyncio.Event().wait()
    return nonce


@tool(timeout_s=1.0, queue="cpu")
def never_in_process(nonce: str, ctx: Context) -> str:
    """Wait for ever, and hear nothing."""
    _enter(nonce, ctx)
    while True:
        time.sleep(60)


@tool(read_only=True)
async def swallow(nonce: str, value: Any, ctx: Context) -> str:
    """Take anything."""
    _enter(nonce, ctx)
    return nonce
