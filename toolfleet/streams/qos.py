"""How much one channel may be delivered, and what becomes of each message. Acknowledgements leave once per tick.

Any thread may acknowledge: every change here is one operation on a dict or a deque. Knows no Redis.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kombu.transport import virtual

if TYPE_CHECKING:
    from toolfleet.streams.holdings import Holdings, Reference

MAX_READ: Final = 250
"""Messages in one read; a script call for so many keeps Redis busy for about a millisecond."""


class StreamQoS(virtual.QoS):  # type: ignore[misc]  # kombu ships no types
    """Prefetch credit and settlement of the messages of one channel."""

    holdings: Holdings

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        # kombu's own __init__ is left out: its message table and its restore at exit are what this class replaces.
        self.channel = channel
        self.prefetch_count = prefetch_count or 0
        self._ahead = 0
        self.holdings = channel.holdings
        self.held: dict[str, Reference] = {}
        """Delivered and not settled, by delivery tag."""
        self.holdings.receiving.add(self)

    @property
    def started(self) -> set[str]:
        """The tags of messages whose work has begun. Whoever runs them adds them, and they are never handed back."""
        return self.holdings.started

    def take_ahead(self, ahead: int) -> None:
        """Let so many messages more than the prefetch count be delivered, because each is done with in no time.

        Fewer, where it is below zero: there are not as many slots as there are to be. Whoever runs them says so.
        """
        grows, self._ahead = ahead > self._ahead, ahead
        if grows:
            self.channel.wake_for_credit()

    @property
    def _taken(self) -> int:
        """How many messages take up slots: those of lost channels are still at work."""
        return len(self.held) + len(self.holdings.orphans)

    @property
    def are_slots_taken(self) -> bool:
        """Whether no more may be delivered but what is taken ahead."""
        return 0 < self.prefetch_count <= self._taken

    def can_consume(self) -> bool:
        """Return whether at least one more message may be delivered."""
        return not self.prefetch_count or self._taken < self.prefetch_count + self._ahead

    def wants_more(self) -> bool:
        """Return whether it is time to read: what may lie ahead comes by halves, so that a read brings many."""
        return self.can_consume() and (self._ahead <= 0 or self._taken <= self.prefetch_count + self._ahead // 2)

    def may_wait(self) -> bool:
        """Return whether a read may wait: queues give to slots by themselves, and to what is taken ahead when asked."""
        return self.can_consume() and not self.are_slots_taken

    def credit(self) -> int:
        """Return how many messages the next read may deliver."""
        if "can_consume" in self.__dict__:  # Celery's worker_disable_prefetch replaces it: one at a time, then
            return 1
        if not self.prefetch_count:
            return MAX_READ
        return max(1, min(self.prefetch_count + self._ahead - self._taken, MAX_READ))

    @property
    def slots(self) -> int:
        """How many messages this channel holds at most, as far as queues count on it."""
        return self.prefetch_count or MAX_READ

    def append(self, message: Any, delivery_tag: str) -> None:
        """Hold a delivered message until it is settled."""
        self.held[delivery_tag] = weakref.ref(message)

    def get(self, delivery_tag: str) -> Any:
        """Return the delivered message. Raises KeyError when it is settled or gone."""
        message = self.held[delivery_tag]()
        if message is None:
            raise KeyError(delivery_tag)
        return message

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge: the message is deleted from the queue at the next tick."""
        if "|" in delivery_tag:  # a fanout message has no entry
            self.holdings.acks.append(delivery_tag)
        self.forget(delivery_tag)
        if "|" in delivery_tag:
            self.channel.settle_soon()

    def forget(self, delivery_tag: str) -> None:
        """Drop local bookkeeping only: the message has been acknowledged in Redis, along with its result."""
        is_held = self.held.pop(delivery_tag, None) is not None
        is_orphan = not is_held and self.holdings.orphans.pop(delivery_tag, None) is not None
        self.holdings.started.discard(delivery_tag)
        self.channel.wake_for_credit()
        if is_orphan:
            for qos in tuple(self.holdings.receiving):  # this one's channel is lost
                qos.channel.wake_for_credit()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001  # kombu's signature
        """Give a message to another worker, with this delivery counted; or to the dead letters."""
        if "|" not in delivery_tag:
            self.forget(delivery_tag)
            return
        # Said before it is forgotten: a message that is neither held nor spoken of counts as never seen.
        if requeue:
            self.holdings.parked.append((delivery_tag, False))
        else:
            self.holdings.bury(delivery_tag, "rejected by the worker")
        self.forget(delivery_tag)
        self.channel.settle_soon(urgent=True)

    def hand_back(self, delivery_tags: Iterable[str]) -> None:
        """Give messages that never came to a start to another worker; this delivery does not count."""
        for tag in list(delivery_tags):
            if "|" in tag:
                self.holdings.parked.append((tag, True))
            self.forget(tag)
        self.channel.settle_soon(urgent=True)

    def hand_back_unstarted(self) -> None:
        """Hand back all that is held at a clean end, except what runs, which can still be acknowledged."""
        running = self.holdings.running()
        self.hand_back(tag for tag in self.held if tag not in running)
        self.orphan()

    def hand_back_abandoned(self) -> None:
        """Hand back what nobody can run any more, although this channel goes on."""
        if self.held:
            self.hand_back(self.holdings.abandoned(self.held))

    def orphan(self) -> None:
        """Let the channel end while its messages are still at work. They stay this process's, under no channel."""
        self.holdings.orphans.update(self.held)
        self.held.clear()

    def restore_unacked(self) -> list[tuple[Exception, Any]]:
        """Hand back all that is held (AMQP's basic.recover)."""
        self.hand_back(self.held)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Do nothing: the channel has decided about its messages before kombu asks."""

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Do nothing: leases tell which worker is gone, not a timeout."""
