"""Claims for a read that waited: what the fetch script does as it reads is done here, one round trip later."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from toolfleet.keys import Keys
from toolfleet.streams.entries import DeliveredEntry, claim_of


def claim(
    client: redis.Redis, keys: Keys, deliveries: Sequence[DeliveredEntry]
) -> tuple[list[DeliveredEntry], list[DeliveredEntry]]:
    """Claim the calls among these deliveries. Returns those that may go on, in order, and the copies of other messages.

    A call whose claim could not be written goes on unclaimed: its worker claims it, or finds that it cannot. So does a
    call that has a result, of which its worker finds whether it is a true one.
    """
    wanted = [claim_of(delivery) for delivery in deliveries]
    if not any(wanted):
        return list(deliveries), []
    with client.pipeline(transaction=False) as pipeline:
        for delivery, asked in zip(deliveries, wanted, strict=True):
            if asked:
                call_id, ttl_s = asked
                pipeline.set(keys.claim(call_id), delivery.entry_id, nx=True, get=True, ex=ttl_s)
                pipeline.exists(keys.result(call_id))
        replies = iter(pipeline.execute(raise_on_error=False))
    kept, copies = [], []
    for delivery, asked in zip(deliveries, wanted, strict=True):
        holder, has_result = (next(replies), next(replies)) if asked else (redis.ResponseError(), 0)
        if isinstance(holder, Exception):
            kept.append(delivery)
        elif holder is None or holder == delivery.entry_id.encode():
            kept.append(delivery._replace(claimed=has_result == 0))
        else:
            copies.append(delivery)
    return kept, copies
