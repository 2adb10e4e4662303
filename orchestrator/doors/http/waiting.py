"""Waiting on behalf of a client, for as long as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request

from toolfleet.orchestrator.doors.http.problems import Problem

T = TypeVar("T")


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; it is cancelled when the client hangs up. Raises Problem then, which nobody reads."""
    working = asyncio.ensure_future(work)  # watched: its result is returned below
    left = asyncio.ensure_future(_until_left(request))  # watched: awaited below
    try:
        await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, "the client left")
    finally:
        for task in (working, left):
            task.cancel()
        await asyncio.gather(working, left, return_exceptions=True)


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
