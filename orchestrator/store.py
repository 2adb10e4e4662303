"""A run in Redis: an append-only stream of its events, and nothing else. The run is read back by folding them."""

from __future__ import annotations

from typing import Final, cast

import redis.asyncio

from orchestrator.run import RUN_EVENT, CallsBack, ModelReplied, Run, RunStarted, RunStopped, SlowResultDelivered
from toolfleet.connections import translating
from toolfleet.errors import RunNotFound
from toolfleet.settings import Settings

RUN_TTL_S: Final = 7 * 24 * 3600
"""A run that nothing happens to is forgotten after a week."""


class RunStore:
    """Writes events down before what they announce is done."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    async def append(
        self, run_id: str, event: RunStarted | ModelReplied | CallsBack | SlowResultDelivered | RunStopped
    ) -> None:
        """Add an event to a run. Raises StoreUnreachable; then nothing that follows from it may be done."""
        key = self._settings.keys.run(run_id)
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xadd(key, {"e": event.model_dump_json()})
        pipeline.expire(key, RUN_TTL_S)
        with translating(self._settings):
            await pipeline.execute()

    async def load(self, run_id: str) -> Run:
        """The run as its events tell it. Raises RunNotFound, StoreUnreachable."""
        with translating(self._settings):
            entries = cast(
                "list[tuple[bytes, dict[bytes, bytes]]]",
                await self._client.xrange(self._settings.keys.run(run_id)),
            )
        events = [RUN_EVENT.validate_json(fields[b"e"]) for _, fields in entries]
        if not events or not isinstance(events[0], RunStarted):
            raise RunNotFound(f"no run {run_id} is stored; runs are kept for {RUN_TTL_S // 86400} days")
        run = Run.start(events[0])
        for event in events[1:]:
            assert not isinstance(event, RunStarted)  # noqa: S101  # a stream has one beginning
            run = run.on(event)
        return run
