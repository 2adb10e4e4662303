"""Reads a channel's queues on an event loop of asyncio: what is read there starts there, without a thread between.

Takes the place of the reads that kombu's poller would send. Which queues, how much, and all that is said about a
message afterwards stay the channel's, and so does the look for lost replies: it must run neither beside a read nor
beside what the channel says.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import redis
import redis.asyncio
from kombu.log import get_logger

from toolfleet.event_loop import stand_back
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.streams import scripts
from toolfleet.streams.claiming import ClaimsOfNews, Command, claim_commands, sorted_out
from toolfleet.streams.names import GROUP
from toolfleet.streams.reader import LATE_REPLY_S, PAUSE_AFTER_REFUSAL_S, Reader
from toolfleet.streams.waiting_connection import WaitingConnection
from toolfleet.supervision import failed, run_errand, stop

if TYPE_CHECKING:
    from toolfleet.streams.channel import StreamChannel
    from toolfleet.streams.entries import DeliveredEntry

logger = get_logger("toolfleet.streams")

SILENT_S: Final = 6.0
"""How long the server may say nothing, with what a read waits; then another connection is made."""

LAST_READ_S: Final = 1.5
"""How long the last read may take to end: longer than one waits that nobody interrupts."""

GIVING_BACK_S: Final = 0.02
"""How often a fetch looks whether all that goes back has gone."""

STOP_WITHIN_S: Final = 5.0
"""How long the channel's thread waits for that, as a tool may block the loop."""

FEW: Final = 8
"""So few calls are begun before the next read is sent; of more, the next are read meanwhile."""

TURNS_OF_A_CALL: Final = 2
"""The turns of the loop in which a tool that waits for nothing runs and its result is sent."""

AWAY: Final = (*COMMAND_FAILED, OSError)


class LoopReader:
    """Reads for one channel. `start` and `stop` belong to the channel's thread, the rest to the loop's."""

    def __init__(
        self, channel: StreamChannel, loop: asyncio.AbstractEventLoop, connect: Callable[[], redis.asyncio.Redis]
    ) -> None:
        """`connect` is called on the loop, and returns a client of the channel's server."""
        self._channel = channel
        self._loop = loop
        self._connect = connect
        self._reading: Future[None] | None = None
        self._stops = False
        self._starved_of: Callable[[], bool] | None = None
        self._is_away = False
        self._lost_are_wanted = False
        self._lost_sought_s = monotonic()
        self._queues: list[str] = []
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- on any thread ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read, unless it does already, or still ends. One that a tool has cancelled begins again."""
        if self._reading is None or self._reading.done():
            self._stops = False
            self._reading = asyncio.run_coroutine_threadsafe(self._read_until_stopped(), self._loop)

    def stop(self) -> None:
        """Return when nothing is read any more. What the last read brings is handed back, uncounted."""
        reading, stops_already, self._stops = self._reading, self._stops, True
        if reading is None or reading.done() or stops_already or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._end)
        try:
            reading.result(STOP_WITHIN_S)
        except CancelledError:
            pass  # its last reply is lost; the next channel looks for it, or the companion
        except TimeoutError:
            logger.warning("reading could not be stopped within %g s: a tool may block the event loop", STOP_WITHIN_S)

    def credit_returned(self) -> None:
        """Go on reading, if that waits until a message is settled."""
        if self._starved_of is None or not self._starved_of():
            return
        if threading.get_ident() == self._thread:
            self._woken.set()
        else:
            self._loop.call_soon_threadsafe(self._woken.set)

    def seek_lost_if_wanted(self) -> None:
        """Look for lost replies while the reading waits for that. Belongs to the channel's thread, too.

        A lost connection is raised there, and ends the channel and so the wait.
        """
        if self._lost_are_wanted and not self._stops:
            self._channel.find_lost_replies(monotonic())
            self._channel.settle()
            self._lost_are_wanted = False
            self._loop.call_soon_threadsafe(self._woken.set)

    # --- on the loop --------------------------------------------------------------------------------------------

    async def _read_until_stopped(self) -> None:
        channel = self._channel
        self._thread = threading.get_ident()
        self._task = asyncio.current_task()
        self._reader = Reader(channel.keys, channel.priority_steps, channel.holdings.consumer)
        self._claims = ClaimsOfNews(channel.keys, channel.holdings.consumer)
        self._client = self._connect()
        self._connection = WaitingConnection(self._client, silent_s=SILENT_S)
        try:
            while not self._stops:
                await self._read_or_rest()
        except Exception as error:  # noqa: BLE001  # told to the log: the channel's next tick begins anew
            failed("reading", error)
        finally:
            self._task = None
            try:
                await self._connection.aclose()
            finally:
                await self._client.aclose()

    async def _read_or_rest(self) -> None:
        try:
            await self._read_once()
        except AWAY as error:
            self._reader.look_for_everything()
            await self._connection.aclose()
            if not (self._is_away or self._stops):
                logger.warning("reading goes on when Redis is back: %s", error)
            self._is_away = True
            await self._rest(PAUSE_AFTER_REFUSAL_S)

    async def _read_once(self) -> None:
        channel = self._channel
        if monotonic() - self._lost_sought_s >= channel.heartbeat_s:
            await self._seek_lost()
        queues, now_s = self._queues_in_turn(), monotonic()
        # What comes while all slots are taken goes to the waiting room, and ends no wait.
        has_credit = channel.qos.may_wait if self._reader.would_wait(now_s) else channel.qos.wants_more
        if not queues or not has_credit():
            await self._wait_for_credit(has_credit)
            return
        wait_ms = int(channel.brpop_timeout * 1000)
        read, command = self._reader.next_read(queues, channel.qos.credit(), now_s, wait_ms, slots=channel.qos.slots)
        if read.per_stream == 0 and not await self._may_take():
            return
        claims = self._claims.commands(read.streams) if read.per_stream else []
        try:
            reply, *claimed = await self._connection.request(command, *claims)
        finally:
            if read.per_stream == 0:
                channel.holdings.taken()
        self._is_away = False
        if isinstance(reply, redis.ResponseError):
            await self._heal(reply)
            return
        connected = self._connection.times_connected
        deliveries = await self._claimed(self._reader.deliveries(read, reply), claimed)
        deliveries = await self._on_replicas(deliveries, connected)
        if deliveries and monotonic() - read.sent_s > channel.brpop_timeout + LATE_REPLY_S:
            deliveries = await self._still_ours(deliveries)
        self._take(deliveries)
        if read.per_stream and channel.qos.are_slots_taken:
            self._reader.look_for_everything()
        if channel.holdings.has_news:
            channel.settle_soon()
        if len(deliveries) <= FEW:
            # The result of a tool that answers at once goes out before the next read: Redis takes them one by one.
            await stand_back(TURNS_OF_A_CALL)

    def _queues_in_turn(self) -> list[str]:
        """Return the queues that are consumed; the one that last brought something comes last."""
        consumed = self._channel.queues_consumed()
        if len(consumed) != len(self._queues) or set(consumed) != set(self._queues):
            self._queues = consumed
            self._reader.look_for_everything()
        return self._queues

    def _take(self, deliveries: Sequence[DeliveredEntry]) -> None:
        if not deliveries:
            return
        if self._stops:
            self._channel.hand_back(deliveries)
            return
        queue = self._channel.queue_of(deliveries[0])
        if queue in self._queues:
            self._queues.remove(queue)
            self._queues.append(queue)
        self._channel.deliver_all(deliveries)

    async def _may_take(self) -> bool:
        """Wait until a fetch may take what was handed back. Returns False if reading stops before."""
        if self._channel.holdings.may_take():
            return True
        self._channel.settle_soon()
        while not self._stops:
            await self._rest(GIVING_BACK_S)
            if self._channel.holdings.may_take():
                return True
        return False

    async def _claimed(self, deliveries: list[DeliveredEntry], replies: Sequence[Any]) -> list[DeliveredEntry]:
        """Return those that may start, claimed where they must be and neither script has done it.

        `replies`: what the script said that was sent behind the read, if it was.
        """
        self._claims.note(deliveries)
        unknown: list[Command] = []
        for reply in replies:
            if isinstance(reply, redis.exceptions.NoScriptError):
                unknown.append(("SCRIPT", "LOAD", scripts.CLAIM_NEWS))
            deliveries, copies = self._claims.sorted_out(deliveries, reply)
            if copies:
                self._channel.drop_copies(copies)
        commands = claim_commands(self._channel.keys, deliveries) + unknown
        if not commands:
            return deliveries
        try:
            kept, copies = sorted_out(deliveries, await self._connection.request(*commands))
        except AWAY:
            return deliveries  # each is claimed before it starts, once Redis is back
        if copies:
            self._channel.drop_copies(copies)
        return kept

    async def _on_replicas(self, deliveries: list[DeliveredEntry], connected: int) -> list[DeliveredEntry]:
        """Return what may start: all, or nothing where too few replicas know of what was read.

        `connected`: how often the connection had been made when it was read. Another one may be another server's.
        """
        replicas = self._channel.replicas
        if not deliveries or not replicas.wanted:
            return deliveries
        try:
            _, reached = await self._connection.request(*replicas.commands())
        except AWAY as error:
            reached = error
        has_it = isinstance(reached, int) and self._connection.times_connected == connected
        if has_it and reached >= replicas.wanted:
            return deliveries
        self._channel.go_back_unreplicated(deliveries, reached if has_it else 0)
        self._channel.settle_soon()
        await self._rest(PAUSE_AFTER_REFUSAL_S)
        return []

    async def _still_ours(self, deliveries: Sequence[DeliveredEntry]) -> list[DeliveredEntry]:
        """Return those that are still pending with this process: during a stall others may have taken them over."""
        consumer = self._channel.holdings.consumer
        async with self._client.pipeline(transaction=False) as pipeline:
            for delivery in deliveries:
                at = delivery.entry_id
                pipeline.xpending_range(delivery.stream, GROUP, at, at, 1, consumer)
            held = await pipeline.execute()
        return [delivery for delivery, pending in zip(deliveries, held, strict=True) if pending]

    async def _heal(self, refusal: redis.ResponseError) -> None:
        self._reader.look_for_everything()  # the fetch script creates groups that are missing
        if isinstance(refusal, redis.exceptions.NoScriptError):
            await self._client.script_load(scripts.FETCH)
        elif str(refusal).startswith("UNBLOCKED"):
            await self._connection.aclose()  # it is a primary no more
        elif not str(refusal).startswith("NOGROUP"):
            logger.warning("reading rests for %g s, Redis refused it: %s", PAUSE_AFTER_REFUSAL_S, refusal)
            await self._rest(PAUSE_AFTER_REFUSAL_S)

    async def _seek_lost(self) -> None:
        """Have the channel hand back what was delivered and never seen. Nothing is read meanwhile."""
        self._lost_sought_s = monotonic()
        self._lost_are_wanted = True
        self._channel.settle_soon()
        while self._lost_are_wanted and not self._stops:
            self._woken.clear()
            await self._woken.wait()

    async def _wait_for_credit(self, has_credit: Callable[[], bool]) -> None:
        self._reader.look_for_everything()
        self._woken.clear()
        self._starved_of = has_credit  # before the look: credit that returns in between is told of
        try:
            if not (self._stops or (has_credit() and self._queues)):
                await self._rest_until_woken(self._channel.heartbeat_s)
        finally:
            self._starved_of = None

    async def _rest(self, pause_s: float) -> None:
        self._woken.clear()
        if not self._stops:
            await self._rest_until_woken(pause_s)

    async def _rest_until_woken(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()

    def _end(self) -> None:
        self._woken.set()
        if self._task is not None:
            run_errand("end_of_reading", self._end_read(self._task))

    async def _end_read(self, task: asyncio.Task[None]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_READ_S):
                await self._connection.end_wait()
        await asyncio.wait([task], timeout=LAST_READ_S)
        await stop(task)
