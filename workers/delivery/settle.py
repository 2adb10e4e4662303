"""Results into Redis: stored, announced and acknowledged in one atomic step, and only by who still owns the call.

Three moves that stock systems make separately are one script here, so that no crash can fall between them. Knows
nothing of tools or of Celery's objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple, cast

import orjson
import redis
import redis.asyncio

from toolfleet.batcher import Batcher
from toolfleet.calls import Failed, Returned, Submitted, ToolCall
from toolfleet.forged import COUNTED_AS, TrueResult, is_forged, replace_forged, replacing
from toolfleet.gates import places_of
from toolfleet.keys import Keys
from toolfleet.logs import FactLog
from toolfleet.outages import until_redis_is_back, until_redis_is_back_blocking
from toolfleet.replicas import Replicas, script_on_replicas
from toolfleet.replies import REPLACE_RESULT
from toolfleet.scripts import wire_script
from toolfleet.spendings import Spending, add_up, add_up_blocking, spending_of
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery

log = FactLog("toolfleet.workers")

MAX_BATCH: Final = 500
"""Settlements in one script call: beyond this Redis would be busy for longer than a few milliseconds at a time."""


SETTLE: Final = wire_script("settle")


class Outcome(IntEnum):
    """What became of a settlement."""

    LATE = 0
    """Another worker owns the call by now; this result was dropped."""
    SETTLED = 1
    """The result is stored and announced, and the message acknowledged."""
    ALREADY = 2
    """The call had a result; this one was dropped and the message acknowledged."""


_OUTCOMES: Final = tuple(Outcome)
"""By their numbers, for each call: quicker than calling the enum."""


class Settlement(NamedTuple):
    """One result on its way, with all that Redis needs to judge it."""

    stream: str
    entry_id: str
    consumer: str
    call_id: str
    reply_to: str
    sealed: bytes
    gates: str = ""
    spending: Spending | None = None

    @property
    def result(self) -> TrueResult:
        """The result that is on its way."""
        return TrueResult(self.call_id, self.sealed, self.reply_to)

    @classmethod
    def of(cls, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted, seal: Seal) -> Settlement:
        """Make the settlement of a delivered call, with its result sealed and the attempt that it comes from noted."""
        attempt = None if isinstance(result, Submitted) else attempt_text(delivery)
        return cls(
            stream=delivery.stream,
            entry_id=delivery.entry_id,
            consumer=delivery.consumer,
            call_id=call.call_id,
            reply_to=call.reply_to,
            sealed=seal.close_result(result, call.call_id, attempt),
            gates=delivery.gates,
            spending=spending_of(call.tool, result),
        )


def attempt_text(delivery: Delivery) -> bytes:
    """Return the `Attempt` of a delivery that ends now, as JSON: to make the record first costs six times as much."""
    began_unix_s = delivery.came_unix_s
    ended_unix_s = max(began_unix_s, time.time())  # the clock may have been set back meanwhile
    facts = _json_of(delivery.worker), delivery.deliveries, began_unix_s, ended_unix_s
    return b'{"worker":%b,"number":%d,"began_unix_s":%.4f,"ended_unix_s":%.4f}' % facts


_json_of: Final = lru_cache(maxsize=64)(orjson.dumps)
"""The JSON of a worker's name, which is the same in nearly all that a process settles."""


def settle_now(client: redis.Redis, keys: Keys, settlement: Settlement, seal: Seal) -> Outcome:
    """Settle one call, and return once Redis has answered, however long that takes. For processes without a loop."""
    script, replace = client.register_script(SETTLE), client.register_script(REPLACE_RESULT)
    outcomes: list[int] = until_redis_is_back_blocking(lambda: script(args=_arguments(keys, [settlement])))
    if outcomes[0] == Outcome.SETTLED and settlement.spending:
        add_up_blocking(client, keys, [settlement.spending])
    if outcomes[0] != Outcome.ALREADY:
        return Outcome(outcomes[0])
    key = keys.result(settlement.call_id)
    [found] = cast("list[bytes | None]", until_redis_is_back_blocking(lambda: client.mget([key])))
    if found is None and not until_redis_is_back_blocking(lambda: client.exists(key)):
        return Outcome.ALREADY
    if not is_forged(seal, found or b"", settlement.call_id):
        return Outcome.ALREADY
    until_redis_is_back_blocking(lambda: client.hincrby(keys.counters(), COUNTED_AS, 1))
    args = replacing(keys, settlement.result, found or b"")
    return Outcome(until_redis_is_back_blocking(lambda: replace(args=args)))


class Settler:
    """Settles calls of one event loop in batches."""

    def __init__(
        self, client: redis.asyncio.Redis, keys: Keys, seal: Seal, *, replicas: Replicas | None = None
    ) -> None:
        """`replicas` are to have a result before its call counts as settled."""
        self._client = client
        self._keys = keys
        self._seal = seal
        self._script = script_on_replicas(client, SETTLE, replicas)
        self._replace = client.register_script(REPLACE_RESULT)
        self._batcher = Batcher(self.settle_all, max_batch=MAX_BATCH)

    def settle(self, settlement: Settlement) -> asyncio.Future[Outcome]:
        """Queue a settlement. The future has its outcome once Redis has answered, however long that takes."""
        return self._batcher.add(settlement)

    async def settle_all(self, settlements: Sequence[Settlement]) -> list[Outcome]:
        """Settle up to MAX_BATCH calls at once. Returns what became of each once Redis has answered, as `settle`."""
        arguments = _arguments(self._keys, settlements)

        async def settle() -> list[int]:
            outcomes: list[int] = await self._script(args=arguments)
            return outcomes

        # A result in hand is worth waiting for: sending it twice is harmless, the second time it is ALREADY.
        outcomes = [_OUTCOMES[outcome] for outcome in await until_redis_is_back(settle)]
        if Outcome.ALREADY in outcomes:
            for at, outcome in enumerate(outcomes):
                if outcome is Outcome.ALREADY:
                    outcomes[at] = await self._unless_forged(settlements[at])
        settled = zip(settlements, outcomes, strict=True)
        if spendings := [each.spending for each, outcome in settled if each.spending and outcome is Outcome.SETTLED]:
            await add_up(self._client, self._keys, spendings)
        if Outcome.LATE in outcomes:
            for settlement, outcome in zip(settlements, outcomes, strict=True):
                if outcome is Outcome.LATE:
                    log.warning("late_result_dropped", call_id=settlement.call_id)
        return outcomes

    async def _unless_forged(self, settlement: Settlement) -> Outcome:
        """What becomes of a call that had a result: ours counts if nobody of the fleet has sealed that one."""

        async def replace() -> int:
            return await replace_forged(self._client, self._keys, self._seal, settlement.result)

        return Outcome(await until_redis_is_back(replace))


def _arguments(keys: Keys, settlements: Sequence[Settlement]) -> list[str | bytes | int]:
    arguments: list[str | bytes | int] = [keys.job("")]
    for (stream, consumer, reply_to), group in groupby(settlements, key=_origin):
        members = list(group)
        arguments += (stream, consumer, keys.result(""), keys.replies(reply_to), len(members))
        for item in members:
            arguments += (item.entry_id, item.call_id, item.sealed)
            if item.gates:
                names = places_of(item.gates)
                arguments += (len(names), *names)
            else:
                arguments.append("")
    return arguments


def _origin(settlement: Settlement) -> tuple[str, str, str]:
    """Return what neighbours in a batch mostly share, so that it is sent once for all of them."""
    return settlement.stream, settlement.consumer, settlement.reply_to
