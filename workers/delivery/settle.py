"""Results into Redis: stored, announced and acknowledged in one atomic step, and only by who still owns the call.

Three moves that stock systems make separately are one script here, so that no crash can fall between them. Knows
nothing of tools or of Celery's objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

import redis
import redis.asyncio
import stamina
import structlog

from toolfleet.calls import Attempt, Failed, Returned, Submitted, ToolCall
from toolfleet.keys import REPLIES_MAX, REPLIES_TTL_S, RESULT_TTL_S, Keys
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.replies import TELL
from toolfleet.streams import GROUP, RETURNED
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery

log = structlog.get_logger("toolfleet.workers")

MAX_BATCH: Final = 500
"""Settlements in one script call: beyond this Redis would be busy for longer than a few milliseconds at a time."""

SETTLE: Final = f"""
{TELL}
-- ARGV: group, returned, result ttl (ms), replies ttl (s), replies maxlen, prefix of jobs,
--       then for each origin: stream, consumer, prefix of result keys, replies key, number of its settlements,
--       and for each of those: entry, call id, sealed result
local group, returned, jobs = ARGV[1], ARGV[2], ARGV[6]
local outcomes = {{}}
local i = 7
while i <= #ARGV do
  local stream, consumer, prefix, replies = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local last = i + 5 + 3 * (ARGV[i + 4] - 1)
  local done = {{}}
  for at = i + 5, last, 3 do
    local entry, call, sealed = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local outcome = 1
    if stream ~= '' then
      -- The pending entry is the fence: once it is another worker's, a new attempt has begun and this one is too late.
      -- An entry that was taken from us but given to nobody yet is still ours to finish.
      local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
      local owner = pending[1] and pending[1][2]
      if owner and owner ~= consumer and owner ~= returned then outcome = 0 else done[#done + 1] = entry end
      -- What submitted a job is done, whatever is said of its process since: the job ends the call.
      if not owner and redis.call('EXISTS', jobs .. call) == 1 then outcome = 2 end
    end
    if outcome == 1 then
      outcome = settle(prefix, call, sealed, ARGV[3], replies, ARGV[5])
    end
    outcomes[#outcomes + 1] = outcome
  end
  redis.call('EXPIRE', replies, ARGV[4])
  if #done > 0 then
    redis.call('XACK', stream, group, unpack(done))
    redis.call('XDEL', stream, unpack(done))
  end
  i = last + 3
end
return outcomes
"""


class Outcome(IntEnum):
    """What became of a settlement."""

    LATE = 0
    """Another worker owns the call by now; this result was dropped."""
    SETTLED = 1
    ALREADY = 2
    """The call had a result; this one was dropped and the message acknowledged."""


class Settlement(NamedTuple):
    """One result on its way, with all that Redis needs to judge it."""

    stream: str
    entry_id: str
    consumer: str
    call_id: str
    reply_to: str
    sealed: bytes

    @classmethod
    def of(cls, delivery: Delivery, call: ToolCall, result: Returned | Failed | Submitted, seal: Seal) -> Settlement:
        """The settlement of a delivered call, whose result says now which worker it was."""
        if not isinstance(result, Submitted):
            result = result.model_copy(update={"attempt": _attempt(delivery)})
        return cls(
            stream=delivery.stream,
            entry_id=delivery.entry_id,
            consumer=delivery.consumer,
            call_id=call.call_id,
            reply_to=call.reply_to,
            sealed=seal.close_result(result, call.call_id),
        )


def _attempt(delivery: Delivery) -> Attempt:
    return Attempt(
        worker=delivery.worker,
        number=delivery.deliveries,
        began_unix_s=round(delivery.came_unix_s, 4),
        ended_unix_s=round(time.time(), 4),
    )


def settle_now(client: redis.Redis, keys: Keys, settlement: Settlement) -> Outcome:
    """Settle one call and wait for it, however long Redis is away: for processes without an event loop."""
    for attempt in stamina.retry_context(on=COMMAND_FAILED, attempts=None, timeout=None, wait_max=2.0):
        with attempt:
            outcomes: list[int] = client.register_script(SETTLE)(args=_arguments(keys, [settlement]))
    return Outcome(outcomes[0])


class Settler:
    """Settles calls of one event loop in batches: while one batch is on its way, the next one collects."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._keys = keys
        self._script = client.register_script(SETTLE)
        self._waiting: list[tuple[Settlement, asyncio.Future[Outcome]]] = []
        self._flushing: asyncio.Task[None] | None = None

    def settle(self, settlement: Settlement) -> asyncio.Future[Outcome]:
        """Queue a settlement. The future has its outcome once Redis has answered, however long that takes."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((settlement, outcome))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        return outcome

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                outcomes = await self._send([settlement for settlement, _ in batch])
                for (settlement, future), outcome in zip(batch, outcomes, strict=True):
                    _resolve(settlement, future, Outcome(outcome))
        finally:
            self._flushing = None

    async def _send(self, settlements: Sequence[Settlement]) -> list[int]:
        arguments = _arguments(self._keys, settlements)
        with suppress(*COMMAND_FAILED):
            first: list[int] = await self._script(args=arguments)
            return first
        # A result in hand is worth waiting for: sending it twice is harmless, the second time it is ALREADY.
        async for attempt in stamina.retry_context(on=COMMAND_FAILED, attempts=None, timeout=None, wait_max=2.0):
            with attempt:
                outcomes: list[int] = await self._script(args=arguments)
        return outcomes


def _resolve(settlement: Settlement, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if outcome is Outcome.LATE:
        log.warning("late_result_dropped", call_id=settlement.call_id)
    if not future.done():
        future.set_result(outcome)


def _arguments(keys: Keys, settlements: Sequence[Settlement]) -> list[str | bytes | int]:
    arguments: list[str | bytes | int] = [GROUP, RETURNED, RESULT_TTL_S * 1000, REPLIES_TTL_S, REPLIES_MAX]
    arguments.append(keys.job(""))
    for (stream, consumer, reply_to), group in groupby(settlements, key=_origin):
        members = list(group)
        arguments += (stream, consumer, keys.result(""), keys.replies(reply_to), len(members))
        for item in members:
            arguments += (item.entry_id, item.call_id, item.sealed)
    return arguments


def _origin(settlement: Settlement) -> tuple[str, str, str]:
    """What neighbours in a batch mostly share, so that it is sent once for all of them."""
    return settlement.stream, settlement.consumer, settlement.reply_to
