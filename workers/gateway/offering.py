"""What is read becomes an offer, or ends here: believed, in time, safe to start, of this worker's tools and tenant.

The same steps as `perform/performer.py` takes before a tool runs, without the tool.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import redis.asyncio

from toolfleet.calls import Effect, Failed, FailureKind, ToolCall
from toolfleet.keys import DEAD_LETTERS_MAX
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED, home_of
from toolfleet.streams.entries import DeliveredEntry, StreamMessage
from toolfleet.streams.holdings import DEAD_LETTER_FIELD_BYTES
from toolfleet.streams.scripts import BURY, PARK
from toolfleet.streams.unbelieved import Malformed
from toolfleet.wire import Seal
from toolfleet.work import Offer, WorkCall, WorkerKey
from toolfleet.workers.delivery.admit import Admitted, Ended, Unbelievable, Unread, admit
from toolfleet.workers.delivery.checkpoints import open_checkpoint
from toolfleet.workers.delivery.claims import Claimer
from toolfleet.workers.delivery.dead_letters import bury
from toolfleet.workers.delivery.forward import Forwarder, Passed
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement, Settler
from toolfleet.workers.gateway.announcing import Served
from toolfleet.workers.gateway.reading import drop
from toolfleet.workers.gateway.tokens import Hold, offered_to, written
from toolfleet.workers.tool.failures import cancelled_unstarted

NONCE_BYTES: Final = 8


class Polling(NamedTuple):
    """One worker that polls."""

    key: WorkerKey
    worker: str
    served: Served

    @property
    def consumer(self) -> str:
        """Whose the pending entries are that it is offered."""
        return offered_to(self.key.key_id, self.worker)


class Offering:
    """Takes in what was read for workers over HTTPS, on one event loop."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, settler: Settler) -> None:
        self._client = client
        self._settings = settings
        self._keys = settings.keys
        self._seal = seal
        self._settler = settler
        self._claimer = Claimer(client, settings.keys, seal)
        self._forwarder = Forwarder(client, settings.keys, seal)
        self._bury = client.register_script(BURY)
        self._park = client.register_script(PARK)

    async def offers(self, polling: Polling, entries: Sequence[DeliveredEntry]) -> list[Offer]:
        """Return offers of those among these entries that this worker is to begin."""
        taken = [await self._taken(polling, entry) for entry in entries]
        return [offer for offer in taken if offer is not None]

    async def hand_back(self, consumer: str, entries: Sequence[DeliveredEntry]) -> None:
        """Give back what nobody has been offered yet. It does not count."""
        for entry in entries:
            await self._park(keys=[entry.stream], args=[GROUP, consumer, RETURNED, 1, entry.entry_id])

    async def _taken(self, polling: Polling, entry: DeliveredEntry) -> Offer | None:
        try:
            message = StreamMessage.from_delivery(None, entry, polling.consumer, self._settings.max_message_bytes)
        except Malformed as malformed:
            await self._bury_entry(entry, str(malformed))
            return None
        if "task" not in message.headers:
            await drop(self._client, entry.stream, entry.entry_id)
            return None
        delivery = Delivery.of(message.headers, message.delivery_info, message.payload[0], worker=polling.served.name)
        spec = polling.served.specs.get(delivery.task)
        if spec is None or delivery.contract not in ("", spec.contract):
            passed = await self._forwarder.pass_on_unopened(delivery, served=spec)
            if passed is not Passed.NOT:
                return None
        return await self._judged(polling, entry, delivery)

    async def _judged(self, polling: Polling, entry: DeliveredEntry, delivery: Delivery) -> Offer | None:
        spec = polling.served.specs.get(delivery.task)
        effect = delivery.effect(spec.effect if spec else Effect.READ_ONLY)
        decision = admit(
            delivery, effect, self._seal, now_unix_s=time.time(), max_deliveries=self._settings.max_deliveries
        )
        match decision:
            case Unbelievable(reason=reason):
                await bury(self._client, self._keys, delivery, reason)
                await drop(self._client, entry.stream, entry.entry_id)
            case Unread(call=call, version=version, otherwise=otherwise):
                passed = await self._forwarder.pass_on(delivery, call, can_run=False, version=version)
                if passed is Passed.NOT:
                    await self._end(delivery, call, otherwise)
            case Ended(call=call, result=result, dead_letter=is_dead):
                if is_dead:
                    await bury(self._client, self._keys, delivery, result.kind)
                await self._end(delivery, call, result)
            case Admitted(call=call) if spec is not None and not call.is_for(spec.version):
                await self._leave_to_others(delivery, call)
            case Admitted(call=call, must_claim=must_claim):
                if spec is None or polling.key.tenant not in ("", call.tenant):
                    await self._end(delivery, call, _unknown(f"no live worker serves {call.tool} for this call"))
                elif must_claim and not await self._claimer.claim(delivery, call):
                    await drop(self._client, entry.stream, entry.entry_id)
                else:
                    return await self._offered(polling, entry, delivery, call, effect)
        return None

    async def _leave_to_others(self, delivery: Delivery, call: ToolCall) -> None:
        """Pass on a call of another version of its tool; end it where nobody came who serves that."""
        if await self._forwarder.pass_on(delivery, call, can_run=False) is Passed.NOT:
            await self._end(delivery, call, _unknown(self._forwarder.unserved(call)))

    async def _offered(
        self, polling: Polling, entry: DeliveredEntry, delivery: Delivery, call: ToolCall, effect: Effect
    ) -> Offer | None:
        is_cancelled, checkpoint = delivery.cancelled, None
        if not delivery.is_new and not is_cancelled:
            mark, kept = await self._client.mget(
                [self._keys.cancelled(call.call_id), self._keys.checkpoint(call.call_id)]
            )
            is_cancelled, checkpoint = mark is not None, open_checkpoint(self._seal, kept, call.call_id)
        if is_cancelled:
            await self._end(delivery, call, cancelled_unstarted(call.tool))
            return None
        hold = Hold(
            kind="offer",
            worker=polling.worker,
            nonce=secrets.token_hex(NONCE_BYTES),
            stream=entry.stream,
            entry_id=entry.entry_id,
            counted=entry.deliveries,
            number=delivery.deliveries,
            call_id=call.call_id,
            run_id=call.run_id,
            tool=call.tool,
            tenant=call.tenant,
            reply_to=call.reply_to,
            deadline_unix_s=call.deadline_unix_s,
            repeatable=effect.repeatable,
            gates=delivery.gates,
        )
        queue = polling.served.specs[call.tool].queue
        told = _told(call, delivery.deliveries, checkpoint, queue)
        return Offer(offer=written(hold, polling.key.key_id, self._seal), call=told)

    async def _end(self, delivery: Delivery, call: ToolCall, result: Failed) -> None:
        await self._settler.settle(Settlement.of(delivery, call, result, self._seal))

    async def _bury_entry(self, entry: DeliveredEntry, reason: str) -> None:
        queue = entry.stream.removeprefix(self._keys.queue("", 0).rpartition(":")[0]).rpartition(":")[0]
        arguments: list[Any] = [GROUP, DEAD_LETTERS_MAX, home_of(queue) or queue, DEAD_LETTER_FIELD_BYTES]
        await self._bury(
            keys=[entry.stream, self._keys.dead_letters(), self._keys.counters()],
            args=[*arguments, entry.entry_id, reason],
        )


def _told(call: ToolCall, attempt: int, checkpoint: Any, queue: str) -> WorkCall:
    return WorkCall(
        call_id=call.call_id,
        run_id=call.run_id,
        tool=call.tool,
        arguments=call.arguments,
        attempt=attempt,
        deadline_unix_s=call.deadline_unix_s,
        deadline_in_s=max(0.0, call.deadline_unix_s - time.time()),
        context=call.context,
        state=call.state,
        tenant=call.tenant,
        subject=call.subject,
        traceparent=call.traceparent,
        tracestate=call.tracestate,
        baggage=call.baggage,
        queue=queue,
        undoes=call.undoes,
        checkpoint=checkpoint,
    )


def _unknown(message: str) -> Failed:
    return Failed(kind=FailureKind.UNKNOWN_TOOL, message=message)
