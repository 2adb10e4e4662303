"""Completions whose runs wait for a person: their clients hear of it, and do not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.problems import NOT_AGAIN, Problem
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.updates import CallAwaitsApproval, CallEnded, CallStarted, RunUpdate


async def within_patience(
    door: Door, run_id: str, updates: AsyncGenerator[RunUpdate, None]
) -> AsyncGenerator[RunUpdate, None]:
    """Yield the updates of a run.

    When a call of it, or of a run below it, has waited for approval for too long, the run is cancelled: raises Problem,
    which says what waits and how it is approved.
    """
    waiting: dict[str, _Waiting] = {}
    loop = asyncio.get_running_loop()
    pending: asyncio.Task[RunUpdate | None] | None = None
    try:
        while True:
            pending = pending or asyncio.create_task(_next(updates))  # watched: its result is taken below
            until = min((each.until for each in waiting.values()), default=None)
            left_s = None if until is None else max(0.0, until - loop.time())
            done, _ = await asyncio.wait({pending}, timeout=left_s)
            if not done:
                await _must_be_decided(door, run_id, waiting, loop.time())
                continue
            update, pending = pending.result(), None
            if update is None:
                return
            if isinstance(update, CallAwaitsApproval):
                waiting.setdefault(update.call_id, _Waiting(update, loop.time() + door.settings.api_approval_wait_s))
            elif isinstance(update, CallStarted | CallEnded):
                waiting.pop(update.call_id, None)
            yield update
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await updates.aclose()


class _Waiting:
    """A call that waits for a person, and until when its completion waits with it."""

    __slots__ = ("until", "update")

    def __init__(self, update: CallAwaitsApproval, until: float) -> None:
        self.update = update
        self.until = until


async def _next(updates: AsyncGenerator[RunUpdate, None]) -> RunUpdate | None:
    return await anext(updates, None)


async def _must_be_decided(door: Door, run_id: str, waiting: dict[str, _Waiting], now: float) -> None:
    """Raise Problem if a call that was to be decided by now still waits; forget those that were decided unheard."""
    still = {call.call_id for call in (await door.orchestrator.get(run_id)).awaiting_approval}
    for call_id in [call_id for call_id in waiting if call_id not in still]:
        del waiting[call_id]
    late = [each.update for each in waiting.values() if each.until <= now]
    if not late:
        return
    wait_s = door.settings.api_approval_wait_s
    named = f"call {late[0].call_id} of {late[0].tool} has waited {wait_s:g} s for a person's approval"
    with suppress(RunNotOpen, RunNotFound):  # it has ended, or is gone, this moment
        await door.orchestrator.cancel(run_id, f"{named}, and its client waits no longer")
    raise Problem(
        HTTPStatus.FAILED_DEPENDENCY,
        f"{named}, so run {run_id} was cancelled; that call was not sent. Approve while a request waits, with "
        f"`toolfleet runs approve {late[0].run_id}` or POST /v1/runs/{run_id}/approvals, or ask with background=true "
        "at /v1/responses, which waits as long as it takes",
        code="approval-required",
        headers=NOT_AGAIN,  # the next run would wait for the same person
        call_id=late[0].call_id,
        run_id=run_id,
    )
