"""Why a call waits in its queue's waiting room, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson
import redis.asyncio

from toolfleet.keys import Keys
from toolfleet.limits import Gate
from toolfleet.scripts import lua, wire_library

EXPLAIN: Final = lua(__package__, "explain", before=wire_library("room"))


AT_ONCE: Final = 50
"""Calls that are looked at in one script: less than a millisecond of the server's time."""


class Waiting(NamedTuple):
    """How a call waits. `before` counts the calls of its own tenant and limits that go first."""

    reason: str
    """The limit that it waits for, as in "concurrency tenant=acme 5/5"; or that it waits for its turn."""
    before: int
    in_room: int
    """How many calls wait in the room, whoever's they are."""
    others_between: bool
    """Calls of other tenants or with other limits go before it, too; how many nobody can know."""
    gate: Gate | None = None
    estimate_s: float | None = None
    """In how long it goes if its rate stays as it is; None where the length of other calls decides."""


async def why(
    client: redis.asyncio.Redis, keys: Keys, call_ids: Sequence[str], queue: str, priority: int
) -> dict[str, Waiting]:
    """Return why calls wait in the room of a queue, those of them that do. Raises StoreUnreachable."""
    explain = client.register_script(EXPLAIN)
    found: dict[str, Waiting] = {}
    for at in range(0, len(call_ids), AT_ONCE):
        some = call_ids[at : at + AT_ONCE]
        replies = await explain(keys=[keys.queue(queue, priority)], args=some)
        found |= {call_id: _read(*reply) for call_id, reply in zip(some, replies, strict=True) if reply}
    return found


def _read(before: int, in_room: int, others: int, gate_text: bytes, amount: bytes, held: int, again_ms: int) -> Waiting:  # noqa: PLR0917  # the script's reply
    if not gate_text:
        return Waiting("its turn", before, in_room, bool(others))
    gate, most = Gate(*orjson.loads(gate_text)), float(amount)
    of = " ".join(part for part in (gate.kind, gate.value) if part)
    if gate.kind == "rate":
        return Waiting(f"{of} {most:g}/s", before, in_room, bool(others), gate, before / most + again_ms / 1000)
    return Waiting(f"{of} {held}/{most:g}", before, in_room, bool(others), gate)
