"""The last step of a delivery: its result becomes small enough, and is settled; or a job takes the call's place.

Knows results and what stores them, and nothing of how a result came about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeGuard, TypeVar

import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.calls import Failed, FailureKind, JobRecord, Returned, Submitted, ToolCall
from toolfleet.fitting import Fitting
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.points import Point, reached
from toolfleet.replicas import Replicas
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.checkpoints import Checkpoints
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import MAX_BATCH, Outcome, Settlement, Settler
from toolfleet.workers.jobs.decide import job_of
from toolfleet.workers.jobs.schedule import submit
from toolfleet.workers.perform.endings import Ending

log = FactLog("toolfleet.workers")

T = TypeVar("T")


class Concluding(NamedTuple):
    """A result on its way, the ending if it arrives, and who is told of that."""

    settlement: Settlement
    ending: Ending
    tell: Callable[[Ending], None]
    since_s: float


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
        self._settler = Settler(client, settings.keys, seal, replicas=Replicas.of(settings))
        self._soon: Batcher[Concluding, None] = Batcher(self._conclude_all, max_batch=MAX_BATCH)

    async def conclude(self, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted) -> Ending:
        """Settle a delivered call with this result. Returns TAKEN_OVER if the call is another worker's by now.

        Waits for Redis however long it is away, and cannot be cancelled.
        """
        if self._fitting.is_needed(result):
            result = await _finish(asyncio.ensure_future(self._fitting.fit(result, call)))  # watched: awaited here
        since_s = time.perf_counter()
        outcome, result = await self._settle(delivery, call, result)
        CALLS.settled.observe(time.perf_counter() - since_s)
        return self._ended(call.call_id, outcome, ending_of(result))

    def is_plain(self, result: Returned | Failed | Submitted) -> TypeGuard[Returned | Failed]:
        """Whether a result can be settled as it stands: nothing of it is kept elsewhere, and no job takes its place."""
        return not isinstance(result, Submitted) and not self._fitting.is_needed(result)

    def conclude_soon(
        self, delivery: Delivery, call: ToolCall, result: Returned | Failed, tell: Callable[[Ending], None]
    ) -> None:
        """Have a call settled with a plain result, and `tell` what `conclude` would return. Nothing can stop it."""
        self.settle_soon(Settlement.of(delivery, call, result, self._seal), ending_of(result), tell)

    def settle_soon(self, settlement: Settlement, ending: Ending, tell: Callable[[Ending], None]) -> None:
        """Have a call settled, and `tell` the ending if that arrives. Nothing can stop it."""
        self._soon.put(Concluding(settlement, ending, tell, time.perf_counter()))

    def has_checkpoint(self, call_id: str) -> bool:
        """Whether there is a checkpoint of a call, which is removed when it is concluded here."""
        return self._checkpoints.has(call_id)

    async def drain(self) -> None:
        """Return when all that was to be settled soon is settled."""
        await self._soon.drain()

    async def _conclude_all(self, concluding: Sequence[Concluding]) -> Sequence[None]:
        try:
            outcomes = await self._settler.settle_all([each.settlement for each in concluding])
        except Exception:  # whatever was overlooked, whoever waits is told
            log.exception("calls_not_concluded", calls=len(concluding))
            for each in concluding:
                _tell(each, Ending.NOT_PERFORMED)
        else:
            now_s = time.perf_counter()
            for each, outcome in zip(concluding, outcomes, strict=True):
                CALLS.settled.observe(now_s - each.since_s)
                _tell(each, self._ended(each.settlement.call_id, outcome, each.ending))
        return [None] * len(concluding)

    def _ended(self, call_id: str, outcome: Outcome, ending: Ending) -> Ending:
        """Take note that a call is settled, or another worker's. Returns how its delivery has ended."""
        reached(Point.SETTLED, call_id)
        self._checkpoints.end(call_id, settled=outcome is not Outcome.LATE)
        return Ending.TAKEN_OVER if outcome is Outcome.LATE else ending

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


def _tell(each: Concluding, ending: Ending) -> None:
    """Tell of one ending. Whatever goes wrong there, the others of the batch hear of theirs."""
    try:
        each.tell(ending)
    except Exception:  # a slot of each of them depends on it
        log.exception("ending_not_told", call_id=each.settlement.call_id)


async def _finish(work: asyncio.Future[T]) -> T:
    """Wait for the work even when cancelled: a call given back while its result is on its way could run again."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(work)
    return work.result()


def ending_of(result: Returned | Failed | Submitted) -> Ending:
    """Return the ending of a delivery whose call was settled with this result."""
    if not isinstance(result, Failed):
        return Ending.SETTLED
    return Ending.CANCELLED if result.kind is FailureKind.CANCELLED else Ending.FAILED
