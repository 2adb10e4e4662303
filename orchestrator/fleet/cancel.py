"""Calls that are no longer wanted: queued ones never start, running ones are told, jobs elsewhere are called off.

Tells everybody who might work on a call; how the call ends is its worker's word, unless no worker has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import redis.asyncio
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from toolfleet.calls import Failed, FailureKind
from toolfleet.connections import address
from toolfleet.errors import BrokerUnreachable, Refused
from toolfleet.jobs import request_cancel
from toolfleet.keys import RESULT_TTL_S
from toolfleet.questions_kept import AT_ONCE, PARKED, QUEUE
from toolfleet.redis_clients import raise_in_our_words
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

REVOKE_AT_ONCE: Final = 500
"""Ids in one broadcast."""


class CancelRequest(NamedTuple):
    """A call to cancel."""

    call_id: str
    tool: str
    deadline_unix_s: float


class Canceller:
    """Cancels calls of any orchestrator."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, app: Celery) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal
        self._app = app
        self._broadcasting = asyncio.Lock()

    async def cancel(self, calls: Sequence[CancelRequest]) -> None:
        """Tell whoever has these calls, or will get them. Returns when they were told.

        Raises StoreUnreachable, BrokerUnreachable.
        """
        if not calls:
            return
        await self._mark(calls)
        for call in calls:
            await self._call_off_job(call.call_id)
        ids = [call.call_id for call in calls]
        await self._bring_back(ids)
        for start in range(0, len(ids), REVOKE_AT_ONCE):
            # A broadcast blocks on the broker's socket, so it is sent from a thread; from one at a time, because
            # kombu's pools of producers and connections lock each other out when several threads fill them at once.
            async with self._broadcasting:
                await asyncio.to_thread(self._revoke, ids[start : start + REVOKE_AT_ONCE])

    async def _bring_back(self, call_ids: Sequence[str]) -> None:
        """Let marked calls that wait for an answer, or for a time, come back to a worker now, which ends them.

        One that is about to wait finds its mark (`park_question.lua`).
        """
        pipeline = self._client.pipeline(transaction=False)
        for call_id in call_ids:
            pipeline.hmget(self._settings.keys.questions(call_id), [PARKED, QUEUE])
        found = await pipeline.execute(raise_on_error=False)  # one key of another type is no reason to end nothing
        waiting = [(text_of(each[1]), each[0]) for each in found if isinstance(each, list) and all(each)]
        if not waiting:
            return
        pipeline = self._client.pipeline(transaction=False)
        for queue, parked in waiting:
            # One that came back by itself meanwhile is no longer there, and is not brought back.
            pipeline.zadd(self._settings.keys.scheduled(queue), {parked: AT_ONCE}, xx=True)
        await pipeline.execute()

    async def _call_off_job(self, call_id: str) -> None:
        try:
            await request_cancel(self._client, self._settings, self._seal, call_id)
        except Refused as refusal:  # what cannot be opened is no job
            skip("job", str(refusal), call_id=call_id)

    def _revoke(self, ids: Sequence[str]) -> None:
        broker = address(self._app.conf.broker_url)
        try:
            self._app.control.revoke(ids, terminate=True)
        except RedisError as error:
            raise_in_our_words(error, broker)
        except (KombuError, OSError) as error:
            raise BrokerUnreachable(f"the broker at {broker} took no cancellation: {error}") from error

    async def end_unstarted(self, calls: Iterable[CancelRequest]) -> None:
        """Give marked calls that wait in a queue their result, unless they have one: they will never start."""
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            result = Failed(kind=FailureKind.CANCELLED, message=f"{call.tool} was cancelled before it started.")
            sealed = self._seal.close_result(result, call.call_id)
            pipeline.set(self._settings.keys.result(call.call_id), sealed, ex=RESULT_TTL_S, nx=True)
        await pipeline.execute()

    async def _mark(self, calls: Iterable[CancelRequest]) -> None:
        """Leave a mark for workers that are not there yet, or were busy when the broadcast came."""
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            ttl_s = max(1, int(call.deadline_unix_s - time.time())) + RESULT_TTL_S
            mark = self._seal.close_cancel(call.call_id)
            pipeline.set(self._settings.keys.cancelled(call.call_id), mark, ex=ttl_s)
        await pipeline.execute()
