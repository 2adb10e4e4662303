"""Claims for a read that waited: what the fetch script does as it reads is done here, one round trip later.

Commands and what their replies mean. Sending them is the reader's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from toolfleet.keys import Keys
from toolfleet.streams.entries import DeliveredEntry, claim_of

Command = tuple[str | int, ...]


def claim(
    client: redis.Redis, keys: Keys, deliveries: Sequence[DeliveredEntry]
) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
    """Claim the calls among these deliveries. Returns what `sorted_out` does."""
    commands = claim_commands(keys, deliveries)
    if not commands:
        return list(deliveries), []
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
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
