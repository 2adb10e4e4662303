"""What answers `/v1/work`: the requests of workers over HTTPS, in the order in which a call goes through them.

Keeps nothing that another process would miss. Knows Redis through its parts, and nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

import redis.asyncio

from toolfleet.connections import connect_async
from toolfleet.replicas import Replicas
from toolfleet.settings import Settings
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.scripts import LEAVE
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal
from toolfleet.work import (
    Ack,
    Acked,
    Announce,
    Announced,
    Beaten,
    CheckpointSaid,
    Heartbeat,
    Poll,
    Polled,
    ProgressSaid,
    Refusal,
    Release,
    Released,
    ResultSaid,
    Settled,
    WorkerKey,
    WorkRefused,
)
from toolfleet.workers.delivery.settle import Settler
from toolfleet.workers.gateway.announcing import Announcements, Served
from toolfleet.workers.gateway.attempts import Attempts
from toolfleet.workers.gateway.offering import Offering, Polling
from toolfleet.workers.gateway.reading import LEVELS, WorkerReader
from toolfleet.workers.gateway.sweeping import ACK_WITHIN_S, Sweeper
from toolfleet.workers.gateway.tokens import Hold, offered_to, read
from toolfleet.workers.gateway.waiting import WaitingRoom

HEARTBEAT_S: Final = 2.0
"""How often workers show life: so soon they hear that nobody wants a call any more."""

SHOWS_LIFE_EVERY_S: Final = 2.0
"""How often a poll that waits renews what its worker has announced."""


class Gate:
    """The gate of one process. Made on its event loop."""

    def __init__(self, settings: Settings, supervisor: Supervisor, *, max_body_bytes: int) -> None:
        self._settings = settings
        self._keys = settings.keys
        self._seal = Seal(settings)
        self._client: redis.asyncio.Redis = connect_async(settings)
        self._max_body_bytes = max_body_bytes
        settler = Settler(self._client, settings.keys, self._seal, replicas=Replicas.of(settings))
        self._announcements = Announcements(self._client, settings, self._seal)
        self._offering = Offering(self._client, settings, self._seal, settler)
        self._attempts = Attempts(self._client, settings, self._seal, settler)
        self._room = WaitingRoom(self._client)
        self._leave = self._client.register_script(LEAVE)
        self._sweeper = Sweeper(self._client, settings, self._announcements)
        self._sweeping = None if settings.broker_url else supervisor.keep("work_sweeper", self._sweeper.run)

    async def announce(self, key: WorkerKey, said: Announce) -> Announced:
        """Announce a worker's tools."""
        self._must_be_streams()
        await self._announcements.announce(key, said)
        return Announced(
            heartbeat_s=min(self._settings.heartbeat_s, HEARTBEAT_S),
            lease_s=self._settings.lease_s,
            ack_within_s=ACK_WITHIN_S,
            max_body_bytes=self._max_body_bytes,
            grace_s=self._settings.shutdown_grace_s,
        )

    async def poll(
        self, key: WorkerKey, wanted: Poll, is_welcome: Callable[[], Awaitable[bool]], ends: Callable[[], bool]
    ) -> Polled:
        """Return calls as soon as there are any, nothing after `wait_s` or when this server ends."""
        self._must_be_streams()
        served, consumer = await self._alive(key, wanted.worker), offered_to(key.key_id, wanted.worker)
        queues = [spec.queue for spec in served.specs.values()]
        if not queues:
            return Polled()
        reader = WorkerReader(self._client, self._keys, self._room, consumer, queues)
        began_s = shown_s = monotonic()
        while True:
            left_s = max(0.0, began_s + wanted.wait_s - monotonic())
            slots = served.announcement.concurrency
            entries = await reader.read(wanted.calls, slots=slots, wait_s=left_s)
            if not await is_welcome():
                await self._offering.hand_back(consumer, entries)
                raise WorkRefused(Refusal.KEY_GONE, "the key was revoked, or has expired")
            if offers := await self._offering.offers(Polling(key, wanted.worker, served), entries):
                return Polled(calls=tuple(offers))
            if left_s <= 0 or ends():
                return Polled()
            if monotonic() - shown_s >= SHOWS_LIFE_EVERY_S:
                served, shown_s = await self._alive(key, wanted.worker), monotonic()

    async def ack(self, key: WorkerKey, said: Ack) -> Acked:
        """Begin the attempt at a call that was offered."""
        offer = read(said.offer, key.key_id, self._seal, "offer")
        if not key.may_serve(offer.tool):
            raise WorkRefused(Refusal.TOOL_NOT_ALLOWED, f"this key does not include {offer.tool}")
        return await self._attempts.begin(key.key_id, offer)

    async def heartbeat(self, key: WorkerKey, said: Heartbeat) -> Beaten:
        """Renew the leases of these attempts, and the worker's announcement if it is there."""
        own, foreign = self._own(key, said.attempts)
        beaten = await self._attempts.renew(key.key_id, own)
        if foreign:
            raise WorkRefused(
                Refusal.NOT_YOURS,
                f"{len(foreign)} of {len(said.attempts)} attempts were not given to this key; the leases of its own "
                "were renewed",
                positions=foreign,
                **beaten.model_dump(exclude={"v"}),
            )
        await self._alive(key, said.worker)
        return beaten

    async def progress(self, key: WorkerKey, said: ProgressSaid) -> None:
        """Tell whoever waits how far a call has come."""
        await self._attempts.report(key.key_id, read(said.attempt, key.key_id, self._seal, "attempt"), said)

    async def checkpoint(self, key: WorkerKey, said: CheckpointSaid) -> None:
        """Keep where a further attempt would go on."""
        await self._attempts.keep(key.key_id, read(said.attempt, key.key_id, self._seal, "attempt"), said.data)

    async def result(self, key: WorkerKey, said: ResultSaid) -> Settled:
        """Settle a call."""
        attempt = read(said.attempt, key.key_id, self._seal, "attempt")
        return await self._attempts.settle(key.key_id, attempt, said.result)

    async def release(self, key: WorkerKey, said: Release) -> Released:
        """Take calls back, and the worker's announcement if it leaves."""
        offers = [read(each, key.key_id, self._seal, "offer") for each in said.offers]
        attempts = [read(each, key.key_id, self._seal, "attempt") for each in said.attempts]
        released = 0
        for hold in (*offers, *attempts):
            counts = said.begun and hold.kind == "attempt"
            released += await self._attempts.give_back(key.key_id, hold, counts=counts, after_s=said.after_s)
        if said.leaves:
            await self._let_leave(key, said.worker)
        return Released(released=released)

    async def aclose(self) -> None:
        """Stop sweeping, and close the connections."""
        if self._sweeping is not None:
            await self._sweeping.aclose()
        await self._room.aclose()
        await self._client.aclose()

    async def _alive(self, key: WorkerKey, worker: str) -> Served:
        """Note that a worker lives. Raises WorkRefused where it is not announced."""
        served = await self._announcements.served(key, worker)
        lease_ms = int(self._settings.lease_s * 1000)
        await self._client.set(self._keys.lease(offered_to(key.key_id, worker)), "alive", px=lease_ms)
        return served

    async def _let_leave(self, key: WorkerKey, worker: str) -> None:
        consumer = offered_to(key.key_id, worker)
        try:
            served = await self._announcements.served(key, worker)
        except WorkRefused:
            return
        queues = served.announcement.queues
        await self._announcements.withdraw(key, worker)
        streams = [self._keys.queue(queue, level) for queue in queues for level in LEVELS]
        lease = self._keys.lease(consumer)
        arguments: list[str | int] = [GROUP, RETURNED, consumer, int(self._settings.lease_s * 1000)]
        await self._leave(keys=[lease, *streams], args=arguments)

    def _own(self, key: WorkerKey, tokens: tuple[str, ...]) -> tuple[list[Hold], list[int]]:
        """Return the attempts that these name, and the places of those that this key was not given."""
        own, foreign = [], []
        for position, token in enumerate(tokens):
            try:
                own.append(read(token, key.key_id, self._seal, "attempt"))
            except WorkRefused:
                foreign.append(position)
        return own, foreign

    def _must_be_streams(self) -> None:
        if self._settings.broker_url:
            raise WorkRefused(
                Refusal.NO_STREAMS,
                "workers over HTTPS are served from the built-in streams alone: unset TOOLFLEET_BROKER_URL",
            )


def open_gate(settings: Settings, supervisor: Supervisor, **options: Any) -> Gate:
    """Make the gate. The API finds this by its name: it must not import workers."""
    return Gate(settings, supervisor, **options)
