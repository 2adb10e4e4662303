"""Attempts at calls by workers over HTTPS: begun, kept alive, reported on, settled, given back.

Every step asks Redis whose the pending entry is. Raises WorkRefused, StoreUnreachable.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from typing import Final, cast

import redis.asyncio
from pydantic_core import to_json

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.context import MAX_CHECKPOINT_BYTES
from toolfleet.errors import Refused
from toolfleet.fitting import Fitting
from toolfleet.keys import CLAIM_GRACE_S
from toolfleet.outages import until_redis_is_back
from toolfleet.replicas import Replicas, script_on_replicas
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.scripts import PARK
from toolfleet.wire import Seal
from toolfleet.work import Acked, Beaten, ProgressSaid, Refusal, Settled, WorkRefused
from toolfleet.workers.delivery.postpone import postpone
from toolfleet.workers.delivery.progress import ProgressReporter
from toolfleet.workers.delivery.settle import Outcome, Settlement, Settler
from toolfleet.workers.gateway.tokens import Hold, written

BEGIN: Final = lua(__package__, "begin")
RENEW: Final = lua(__package__, "renew")
FORGET: Final = lua(__package__, "forget")
CLAIM_RESULT: Final = lua(__package__, "claim_result")
COUNTS: Final = b" counts"
"""Stands behind the digest of a result that was settled."""


class Attempts:
    """The attempts of one event loop; any other process may go on with each of them."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, settler: Settler) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self._settler = settler
        self._fitting = Fitting(client, settings)
        self._progress = ProgressReporter(asyncio.get_running_loop(), client, settings.keys, seal)
        self.lease_s = settings.lease_s
        self._begin = script_on_replicas(client, BEGIN, Replicas.of(settings))
        self._renew = client.register_script(RENEW)
        self._forget = client.register_script(FORGET)
        self._claim_result = client.register_script(CLAIM_RESULT)
        self._park = client.register_script(PARK)

    async def begin(self, key_id: str, offer: Hold) -> Acked:
        """Begin the attempt at a call that was offered."""
        now_unix_s = time.time()
        attempt = offer.begun(now_unix_s)
        lease = self._keys.lease(attempt.consumer(key_id))
        has_begun = now_unix_s < offer.deadline_unix_s and await self._begin(
            keys=[offer.stream, lease],
            args=[
                *(GROUP, offer.consumer(key_id), attempt.consumer(key_id), offer.entry_id, offer.counted),
                int(self.lease_s * 1000),
            ],
        )
        if not has_begun:
            raise _stale(offer, "it was not acknowledged in time, or has been given back")
        return Acked(call_id=offer.call_id, attempt=written(attempt, key_id, self._seal), lease_s=self.lease_s)

    async def renew(self, key_id: str, attempts: Sequence[Hold]) -> Beaten:
        """Renew the leases of attempts, and tell how they stand."""
        if not attempts:
            return Beaten()
        places, arguments = [], [GROUP, str(int(self.lease_s * 1000))]
        for each in attempts:
            consumer = each.consumer(key_id)
            places += [each.stream, self._keys.lease(consumer), self._keys.cancelled(each.call_id)]
            arguments += [consumer, each.entry_id]
        found: list[int] = await self._renew(keys=places, args=arguments)
        ids = [(each.call_id, how) for each, how in zip(attempts, found, strict=True)]
        return Beaten(
            held=tuple(call_id for call_id, how in ids if how),
            cancelled=await self._cancelled([call_id for call_id, how in ids if how > 1]),
            lost=tuple(call_id for call_id, how in ids if not how),
        )

    async def _cancelled(self, call_ids: Sequence[str]) -> tuple[str, ...]:
        """Return those of these marked calls whose marks the fleet has signed."""
        if not call_ids:
            return ()
        marks = cast("list[bytes | None]", await self._client.mget([self._keys.cancelled(each) for each in call_ids]))
        pairs = zip(call_ids, marks, strict=True)
        return tuple(each for each, mark in pairs if mark is not None and self._seal.believes_cancel(mark, each))

    async def report(self, key_id: str, attempt: Hold, said: ProgressSaid) -> None:
        """Tell of progress."""
        await self._must_hold(key_id, attempt)
        self._progress.of(attempt.call)(said.progress)

    async def keep(self, key_id: str, attempt: Hold, data: object) -> None:
        """Keep a checkpoint."""
        text = to_json(data, inf_nan_mode="null")
        if len(text) > MAX_CHECKPOINT_BYTES:
            raise WorkRefused(
                Refusal.INVALID_RESULT,
                f"the checkpoint has {len(text)} bytes, and at most {MAX_CHECKPOINT_BYTES} are kept",
            )
        await self._must_hold(key_id, attempt)
        sealed = self._seal.close_checkpoint(text, attempt.call_id)
        await self._client.set(self._keys.checkpoint(attempt.call_id), sealed, ex=_left_s(attempt))

    async def settle(self, key_id: str, attempt: Hold, result: Returned | Failed | Submitted) -> Settled:
        """Settle a call: once, with the first result that its attempt has sent."""
        if isinstance(result, Submitted):
            raise WorkRefused(
                Refusal.INVALID_RESULT, "a worker over HTTPS cannot leave its call to a job elsewhere: send its end"
            )
        result = _own(result)
        digest = hashlib.sha256(result.model_dump_json().encode()).hexdigest().encode()
        is_held, before = await self._claimed(key_id, attempt, digest)
        if before is not None and not before.startswith(digest):
            raise _other(attempt)
        if before is None and not is_held:
            raise _stale(attempt, "its result does not count")
        if before == digest + COUNTS:
            return Settled(call_id=attempt.call_id, repeated=True)
        if not is_held:
            return await self._found(attempt, result)
        fitted = await self._fitting.fit(result, attempt.call) if self._fitting.is_needed(result) else result
        outcome = await self._settler.settle(Settlement.of(attempt.delivery(key_id), attempt.call, fitted, self._seal))
        if outcome is not Outcome.SETTLED:
            return await self._found(attempt, fitted)
        await self._end(key_id, attempt, digest)
        return Settled(call_id=attempt.call_id)

    async def give_back(self, key_id: str, hold: Hold, *, counts: bool, after_s: float = 0.0) -> bool:
        """Give a call back. Returns whether it was still there."""
        delivery = hold.delivery(key_id)
        if after_s > 0 and hold.kind == "attempt" and not counts:
            is_ours = await postpone(self._client, self._keys, delivery, hold.call, pause_s=after_s)
        else:
            arguments: list[str | int] = [GROUP, delivery.consumer, RETURNED, int(not counts), hold.entry_id]
            is_ours = bool(await self._park(keys=[hold.stream], args=arguments))
        if hold.kind == "attempt":
            await self._forget_consumer(key_id, hold)
        return is_ours

    async def _found(self, attempt: Hold, result: Returned | Failed | Submitted) -> Settled:
        """Answer for a result that finds the call ended: the very same one is a repeat, any other is too late."""
        sealed = cast("bytes | None", await self._client.get(self._keys.result(attempt.call_id)))
        try:
            is_same = sealed is not None and self._seal.open_result(sealed, attempt.call_id) == result
        except Refused:
            is_same = False
        if not is_same:
            raise _stale(attempt, "its result does not count")
        return Settled(call_id=attempt.call_id, repeated=True)

    async def _end(self, key_id: str, attempt: Hold, digest: bytes) -> None:
        """Note that a result counts, and let go of what the attempt had."""
        consumer = attempt.consumer(key_id)

        async def note() -> None:
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.set(self._keys.work_result(attempt.nonce), digest + COUNTS, ex=_left_s(attempt))
                pipeline.delete(self._keys.checkpoint(attempt.call_id))
                await self._forget(
                    keys=[attempt.stream, self._keys.lease(consumer)], args=[GROUP, consumer], client=pipeline
                )
                await pipeline.execute()

        await until_redis_is_back(note)

    async def _forget_consumer(self, key_id: str, attempt: Hold) -> None:
        consumer = attempt.consumer(key_id)
        await self._forget(keys=[attempt.stream, self._keys.lease(consumer)], args=[GROUP, consumer])

    async def _claimed(self, key_id: str, attempt: Hold, digest: bytes) -> tuple[bool, bytes | None]:
        """Return whether the call is this attempt's, or was taken from it and given to none, and its result before."""
        is_held, before = await self._claim_result(
            keys=[attempt.stream, self._keys.work_result(attempt.nonce)],
            args=[GROUP, attempt.entry_id, attempt.consumer(key_id), RETURNED, digest, _left_s(attempt)],
        )
        return bool(is_held), before

    async def _must_hold(self, key_id: str, attempt: Hold) -> None:
        at = attempt.entry_id
        found = await self._client.xpending_range(attempt.stream, GROUP, at, at, 1, attempt.consumer(key_id))
        if not found:
            raise _stale(attempt, "what is said of it is not heard")


def _own(result: Returned | Failed) -> Returned | Failed:
    """Return a result without what only the fleet says: who has had the call, and what is kept where."""
    if isinstance(result, Failed):
        return result.model_copy(update={"attempt": None})
    media = tuple(part.model_copy(update={"artifact": None}) for part in result.media)
    return result.model_copy(update={"attempt": None, "artifact": None, "media": media})


def _left_s(attempt: Hold) -> int:
    return max(1, int(attempt.deadline_unix_s - time.time())) + CLAIM_GRACE_S


def _stale(hold: Hold, what: str) -> WorkRefused:
    return WorkRefused(
        Refusal.STALE,
        f"call {hold.call_id} is not this {hold.kind}'s any more: it has ended, or is another attempt's; {what}",
        call_id=hold.call_id,
    )


def _other(attempt: Hold) -> WorkRefused:
    return WorkRefused(
        Refusal.OTHER_RESULT,
        f"this attempt at call {attempt.call_id} has sent another result before, and that one counts",
        call_id=attempt.call_id,
    )
