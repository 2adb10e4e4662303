"""The last step of a delivery: its result becomes small enough, and is settled; or a job takes the call's place.

Knows results and what stores them, and nothing of how a result came about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import redis.asyncio

from toolfleet.calls import Failed, FailureKind, JobRecord, Returned, Submitted, ToolCall
from toolfleet.fitting import Fitting
from toolfleet.points import Point, reached
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.checkpoints import Checkpoints
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Outcome, Settlement, Settler
from toolfleet.workers.jobs.decide import job_of
from toolfleet.workers.jobs.schedule import submit
from toolfleet.workers.perform.endings import Ending

T = TypeVar("T")


class Conclusion:
    """Concludes the deliveries of one event loop."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        tools: Mapping[str, Tool[..., Any]],
        seal: Seal,
        checkpoints: Checkpoints,
    ) -> None:
        self._client = client
        self._settings = settings
        self._tools = tools
        self._seal = seal
        self._checkpoints = checkpoints
        self._fitting = Fitting(client, settings)
        self._settler = Settler(client, settings.keys, seal)

    async def conclude(self, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted) -> Ending:
        """Settle a delivered call with this result. Returns TAKEN_OVER if the call is another worker's by now.

        Waits for Redis however long it is away, and cannot be cancelled.
        """
        if self._fitting.is_needed(result):
            result = await _finish(asyncio.ensure_future(self._fitting.fit(result, call)))  # watched: awaited here
        outcome, result = await self._settle(delivery, call, result)
        reached(Point.SETTLED, call.call_id)
        self._checkpoints.end(call.call_id, settled=outcome is not Outcome.LATE)
        return Ending.TAKEN_OVER if outcome is Outcome.LATE else _ending_of(result)

    async def _settle(
        self, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted
    ) -> tuple[Outcome, Returned | Failed | Submitted]:
        """Store the job or the result. Returns what became of it, and the result that the call was settled with."""
        if isinstance(result, Submitted):
            job = job_of(delivery, call, self._tools[call.tool], result)
            if isinstance(job, JobRecord):
                return await submit(self._client, self._settings, self._seal, delivery, job), result
            result = job
        settlement = Settlement.of(delivery, call, result, self._seal)
        try:
            return await self._settler.settle(settlement), result
        except asyncio.CancelledError:
            # It is on its way all the same; sent twice, it counts once.
            return await _finish(self._settler.settle(settlement)), result


async def _finish(work: asyncio.Future[T]) -> T:
    """Wait for the work even when cancelled: a call given back while its result is on its way could run again."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(work)
    return work.result()


def _ending_of(result: Returned | Failed | Submitted) -> Ending:
    """Return the ending of a delivery whose call was settled with this result."""
    if not isinstance(result, Failed):
        return Ending.SETTLED
    return Ending.CANCELLED if result.kind is FailureKind.CANCELLED else Ending.FAILED
