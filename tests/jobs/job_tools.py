"""Tools that start jobs in the other system of conftest.py. A job's external id is its address there."""

from __future__ import annotations

import os
from typing import Any

import httpx

from toolfleet import Context, Failed, FailureKind, Progress, Returned, Submitted, ToolError, tool

CLIENT = httpx.AsyncClient(timeout=30)
"""Shared by the tool and its functions, as real ones do: all must run on one event loop."""


def meaning_of(answer: httpx.Response) -> Any:
    said = answer.raise_for_status().json()
    match said.pop("type", None):
        case "returned":
            return Returned(**said)
        case "failed":
            return Failed(kind=FailureKind.ERROR, **said)
        case "progress":
            return Progress(**said)
        case "submitted":
            return Submitted(**said)
        case _:
            return said


async def start(system: str, poll_after_s: float) -> Submitted:
    answer = await CLIENT.post(f"{system}/jobs", headers={"pid": str(os.getpid())})
    return Submitted(external_id=answer.text, poll_after_s=poll_after_s, message="on its way")


@tool
async def remote(system: str, poll_after_s: float = 0.05) -> Submitted:
    """Start a job that can be asked about and cancelled."""
    return await start(system, poll_after_s)


@remote.poll
async def ask(external_id: str, ctx: Context) -> Any:
    return meaning_of(await CLIENT.get(external_id, headers={"pid": str(os.getpid())}))


@remote.cancel
async def stop(external_id: str, ctx: Context) -> None:
    (await CLIENT.delete(external_id)).raise_for_status()


@tool(queue="cpu")
def remote_from_process(system: str, poll_after_s: float = 0.05) -> Submitted:
    """The same with plain functions, from a pool of processes."""
    answer = httpx.post(f"{system}/jobs")
    return Submitted(external_id=answer.text, poll_after_s=poll_after_s, message="on its way")


@remote_from_process.poll
def ask_from_process(external_id: str, ctx: Context) -> Any:
    return meaning_of(httpx.get(external_id, timeout=30))


@tool
async def unstoppable(system: str, poll_after_s: float = 0.05) -> Submitted:
    """Start a job that cannot be cancelled."""
    return await start(system, poll_after_s)


@unstoppable.poll
def ask_on_a_thread(external_id: str, ctx: Context) -> Any:
    return meaning_of(httpx.get(external_id, timeout=30))


@tool
async def leaves(system: str) -> Submitted:
    """Start a job whose poll function leaves, on a thread."""
    return await start(system, 0.05)


@leaves.poll
def leave(external_id: str, ctx: Context) -> Any:
    answer = meaning_of(httpx.get(external_id, timeout=30))
    if isinstance(answer, Progress):
        raise SystemExit(3)
    return answer


@tool
async def called_back(system: str) -> Submitted:
    """Start a job that tells when it is done."""
    return await start(system, 5.0)


@tool(callback_sets_state=True)
async def called_back_by_a_friend(system: str) -> Submitted:
    """Start a job that tells when it is done, and what the run's tools share then."""
    return await start(system, 5.0)


async def break_after_starting(system: str) -> Submitted:
    await start(system, 5.0)
    raise ConnectionResetError("the answer was lost")


@tool
async def breaks(system: str) -> Submitted:
    """Start a job, and lose the answer."""
    return await break_after_starting(system)


@breaks.poll
async def ask_what_broke(external_id: str, ctx: Context) -> Any:
    return Returned(content="never asked")


@tool(idempotent=True)
async def breaks_harmlessly(system: str) -> Submitted:
    """The same, where starting it again does no harm."""
    return await break_after_starting(system)


@breaks_harmlessly.poll
async def ask_what_broke_harmlessly(external_id: str, ctx: Context) -> Any:
    return Returned(content="never asked")


@tool
async def declines(system: str) -> Submitted:
    """Say that no job was started."""
    raise ToolError("the other system is closed on Sundays")


@declines.poll
async def ask_what_declined(external_id: str, ctx: Context) -> Any:
    return Returned(content="never asked")


@tool
async def forgotten() -> Submitted:
    """Start something that nobody can ever hear of again."""
    return Submitted()
