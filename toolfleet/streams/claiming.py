"""Claims for a read that waited: what the fetch script does as it reads, a script does that is sent behind the read.

Where that has not done it, it is done one round trip later. Commands and what their replies mean: to send them is the
reader's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import redis

from toolfleet.keys import Keys
from toolfleet.streams import scripts
from toolfleet.streams.entries import DeliveredEntry, claim_of
from toolfleet.streams.names import GROUP

Command = tuple[str | int, ...]

NEWS_MAX: Final = 8
"""Of so many messages the script looks up the calls; of more they are in the reader's hands by then anyway."""


class ClaimsOfNews:
    """Claims what a read brings that waits, without a round trip of its own.

    The script cannot see what the read in front of it was answered. It finds that as what is pending with the
    consumer behind the newest entry known before, so what is known may be old, but must have been this consumer's.
    """

    def __init__(self, keys: Keys, consumer: str) -> None:
        self._keys = keys
        self._consumer = consumer
        self._newest: dict[str, str] = {}
        self._asked: list[str] = []
        self._is_worth_it = True

    def commands(self, streams: Sequence[str]) -> list[Command]:
        """Return what is sent behind a read of these streams: nothing where the calls of late needed no claim."""
        if not self._is_worth_it:
            return []
        likeliest = [stream for stream in reversed(self._newest) if stream in streams]
        self._asked = likeliest + [stream for stream in streams if stream not in self._newest]
        behind = [self._newest.get(stream, "0-0") for stream in self._asked]
        prefixes = self._keys.claim(""), self._keys.result("")
        head = ("EVALSHA", scripts.CLAIM_NEWS_SHA, len(self._asked))
        return [(*head, *self._asked, GROUP, self._consumer, *prefixes, NEWS_MAX, *behind)]

    def note(self, deliveries: Sequence[DeliveredEntry]) -> None:
        """Take note of what any read has brought."""
        if deliveries and not deliveries[-1].returned:
            newest = deliveries[-1]
            self._newest.pop(newest.stream, None)  # the last one of the table is the likeliest to have the next
            self._newest[newest.stream] = newest.entry_id
            self._is_worth_it = b"claim" in newest.names

    def sorted_out(
        self, deliveries: Sequence[DeliveredEntry], reply: Any
    ) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
        """Return what a read has brought, claimed where the script has done it, and the copies of other messages."""
        if isinstance(reply, Exception) or not reply:
            return list(deliveries), []
        stream = self._asked[reply[0] - 1]
        found = {(stream, entry_id.decode()): how for entry_id, how in reply[1]}
        kept, copies = [], []
        for delivery in deliveries:
            how = found.get((delivery.stream, delivery.entry_id))
            if how == _ANOTHERS:
                copies.append(delivery)
            else:
                kept.append(delivery._replace(claimed=True) if how == _CLAIMED else delivery)
        return kept, copies


_CLAIMED, _ANOTHERS = 1, -1


def claim(
    client: redis.Redis, keys: Keys, deliveries: Sequence[DeliveredEntry]
) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
    """Claim the calls among these deliveries. Returns what `sorted_out` does."""
    commands = claim_commands(keys, deliveries)
    if not commands:
        return list(deliveries), []
    with client.pipeline(transaction=False) as pipeline:
        for name, *words in commands:
            # Without being told, redis-py takes the holder of a claim for a reply that is not OK.
            pipeline.execute_command(name, *words, **({"get": True} if name == "SET" else {}))
        return sorted_out(deliveries, pipeline.execute(raise_on_error=False))


def claim_commands(keys: Keys, deliveries: Sequence[DeliveredEntry]) -> list[Command]:
    """Return the commands that claim the calls among these deliveries."""
    commands: list[Command] = []
    for delivery in deliveries:
        if asked := claim_of(delivery):
            call_id, ttl_s = asked
            commands.append(("SET", keys.claim(call_id), delivery.entry_id, "NX", "GET", "EX", ttl_s))
            commands.append(("EXISTS", keys.result(call_id)))
    return commands


def sorted_out(
    deliveries: Sequence[DeliveredEntry], replies: Sequence[Any]
) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
    """Return those that may go on by what the commands were answered, in order, and the copies of other messages.

    A call whose claim could not be written goes on unclaimed: its worker claims it, or finds that it cannot. So does a
    call that has a result, of which its worker finds whether it is a true one.
    """
    answers = iter(replies)
    kept, copies = [], []
    for delivery in deliveries:
        holder, has_result = (next(answers), next(answers)) if claim_of(delivery) else (redis.ResponseError(), 0)
        if isinstance(holder, Exception):
            kept.append(delivery)
        elif holder is None or holder == delivery.entry_id.encode():
            kept.append(delivery._replace(claimed=has_result == 0))
        else:
            copies.append(delivery)
    return kept, copies
