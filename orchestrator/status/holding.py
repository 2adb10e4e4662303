"""What a call waits for in its queue, and who has it: in words for people, from where its message is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, cast

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.catalog import Announcement
from toolfleet.orchestrator.fleet.queue_position import QueuePosition
from toolfleet.settings import Settings

A_WORKER: Final = "a worker"


class WaitsFor(Record):
    """Why a call has not begun."""

    kind: Literal["worker", "turn", "concurrency", "rate"]
    reason: str
    """In words: "concurrency tenant=acme 5/5", or that it is not its turn."""
    ahead: int | None
    """How many calls are taken first, as far as they are known."""
    is_at_least: bool = False
    """Others go before it, too; how many nobody knows."""
    estimate_s: float | None = None
    """In how long it goes if its rate stays as it is; None where the length of other calls decides."""


class HeldBy(Record):
    """The worker that has a call."""

    worker: str
    """Its name or, where no live worker says that it is this one, how the queue knows it."""
    since_s: float
    """For how long it has had it."""
    sign_of_life_s: float | None
    """How long ago it renewed its lease; None where that has lapsed: it is taken for lost, and the call is moved."""
    lease_left_s: float | None
    """In how long it is taken for lost unless it shows that it lives."""


def waits_for(position: QueuePosition | None) -> WaitsFor | None:
    """Return what a call waits for; None for one that a worker has, and for one that was not found."""
    if position is None or position.is_with_worker:
        return None
    if (waiting := position.waiting) is None:
        return WaitsFor(kind="worker", reason=A_WORKER, ahead=position.before, is_at_least=position.is_at_least)
    kind = "turn" if waiting.gate is None else waiting.gate.kind.partition(" ")[0]
    return WaitsFor(
        kind=cast("Literal['turn', 'concurrency', 'rate']", kind),
        reason=waiting.reason,
        ahead=waiting.before,
        is_at_least=waiting.others_between,
        estimate_s=None if waiting.estimate_s is None else round(waiting.estimate_s, 1),
    )


class Holders:
    """Tells which worker it is that has a call, and when it has last shown that it lives. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    async def of(
        self, positions: Collection[QueuePosition | None], workers: Sequence[Announcement]
    ) -> Mapping[str, HeldBy]:
        """Return who has the calls at these positions, without since when, by consumer: one round trip."""
        consumers = sorted({each.consumer for each in positions if each and each.consumer})
        pipeline = self._client.pipeline(transaction=False)
        for consumer in consumers:
            pipeline.pttl(self._settings.keys.lease(consumer))
        left_ms: list[int] = await pipeline.execute() if consumers else []
        return {
            consumer: self._held_by(consumer, left, workers) for consumer, left in zip(consumers, left_ms, strict=True)
        }

    def _held_by(self, consumer: str, left_ms: int, workers: Sequence[Announcement]) -> HeldBy:
        left_s = left_ms / 1000 if left_ms >= 0 else None
        renewed_s = None if left_s is None else round(max(0.0, self._settings.lease_s - left_s), 1)
        return HeldBy(worker=_named(consumer, workers), since_s=0, sign_of_life_s=renewed_s, lease_left_s=left_s)


def _named(consumer: str, workers: Sequence[Announcement]) -> str:
    """Return the name of the worker that reads as this consumer: host, process and what tells it from others."""
    host, pid, _ = consumer.rsplit("-", 2) if consumer.count("-") >= 2 else ("", "", "")  # of these
    found = (each.worker for each in workers if str(each.pid) == pid and each.worker.endswith(f"@{host}"))
    return next(found, consumer)
