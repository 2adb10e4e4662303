"""The real scripts of the transport on a real server, by a clock that whoever drives it sets: for tests and figures."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, cast

import redis

from toolfleet.keys import Keys
from toolfleet.limits import Gate
from toolfleet.scripts import lua, wire_library, wire_script
from toolfleet.streams import GROUP, RETURNED, Priority
from toolfleet.streams.direct import limits_as_arguments
from toolfleet.streams.names import lane_name
from toolfleet.waiting.model import Call, name_of

RETURNED_RESULT = "0" * 64 + '{"type":"returned"}'
"""A result as most are: settled alone it goes a shorter way in the server than any other."""

CLOCK = "local function now_ms() return tonumber(redis.call('GET', 'now')) end"
PUBLISH = wire_script("publish", clock=CLOCK)
FETCH = wire_script("fetch", clock=CLOCK)
PURGE_ROOM = lua("toolfleet.streams", "purge_room", before=wire_library("room", clock=CLOCK))
POSTPONE = wire_script("postpone", clock=CLOCK)
SETTLE = wire_script("settle", clock=CLOCK)


class Transport:
    """One queue, as orchestrators and one worker see it, which may read a lane of it too."""

    def __init__(self, client: redis.Redis, queue: str = "io", *, reads_lane: bool = False) -> None:
        client.execute_command("FLUSHALL", "SYNC")
        self.client, self.keys, self.queue = client, Keys(), queue
        self.lane = lane_name(queue, "0" * 12)
        self.homes = [self.keys.queue(queue, level) for level in Priority]
        self.lanes = [self.keys.queue(self.lane, level) for level in Priority]
        both = [stream for pair in zip(self.lanes, self.homes, strict=True) for stream in pair]
        self.streams = both if reads_lane else self.homes
        """As a worker reads them: levels in turn, and in each its lane first."""
        self._scripts = {text: client.register_script(text) for text in (PUBLISH, FETCH, SETTLE, POSTPONE, PURGE_ROOM)}
        client.set(self.keys.orchestrator("o"), "1")  # who waits for results
        self.now = 1_700_000_000_000
        self.delivered_cancelled: set[str] = set()
        self.advance(0)

    def advance(self, ms: int) -> None:
        self.now += ms
        self.client.set("now", self.now)

    def has_reader(self, until_ms: int) -> None:
        """Let the lane have a reader until then."""
        self.client.zadd(self.keys.lane(self.lane), {"worker": until_ms})

    def publish(self, calls: Sequence[Call], claim_s: str = "", *, lanes: Collection[str] = ()) -> None:
        """Send calls, those in `lanes` for the lane.

        With `claim_s` each may be started by one message only, so long by the server's own clock.
        """
        args: list[Any] = []
        kinds: dict[tuple[Gate, ...], int] = {}
        alike = groupby(calls, key=lambda call: (call.call_id in lanes, call.level, call.tenant, call.gates))
        for (is_for_lane, level, tenant, gates), group in alike:
            row = list(group)
            kind = kinds.setdefault(gates, len(kinds) + 1) if gates else 0
            of_lane = (self.keys.lane(self.lane), self.keys.queue(self.lane, level)) if is_for_lane else ("", "")
            args += [*of_lane, self.keys.queue(self.queue, level), "{}", tenant, kind, len(row)]
            for call in row:
                args += ["[]", "{}", call.call_id, claim_s, call.run_id, int(call.ends_ms)]
        self._scripts[PUBLISH](args=[*limits_as_arguments(kinds), *args])

    def fetch(self, budget: int, slots: int, consumer: str = "worker") -> list[tuple[str, str, str, list[Gate]]]:
        """Each delivery: its stream, its entry, its call, and the gates that it has passed."""
        _, deliveries = self.fetched(budget, slots, consumer)
        return deliveries

    def fetched(
        self, budget: int, slots: int, consumer: str = "worker"
    ) -> tuple[int, list[tuple[str, str, str, list[Gate]]]]:
        """The same, behind the time until the worker is to come back (ms, -1: whenever)."""
        keys = self.keys
        args: list[str | int] = [GROUP, consumer, RETURNED, budget]
        args += [keys.claim(""), keys.cancelled(""), keys.result(""), keys.counters()]
        reply = self._scripts[FETCH](keys=self.streams, args=[*args, slots, keys.scheduled(self.queue)])
        assert not isinstance(reply, Exception)
        due_ms, kinds = reply
        return due_ms, [delivery for kind in kinds for delivery in self._deliveries(*kind)]

    def _deliveries(
        self, position: int, _d: int, _c: int, is_cancelled: int, _r: int, names: list[bytes], told: list[bytes]
    ) -> Iterator[tuple[str, str, str, list[Gate]]]:
        width = 1 + len(names)
        for at in range(0, len(told), width):
            fields = dict(zip(names, told[at + 1 : at + width], strict=True))
            yield self._delivery(self.streams[position - 1], told[at].decode(), fields, is_cancelled=bool(is_cancelled))

    def _delivery(
        self, stream: str, entry: str, fields: dict[bytes, bytes], *, is_cancelled: bool
    ) -> tuple[str, str, str, list[Gate]]:
        gates = [Gate(*gate) for gate in json.loads(fields.get(b"gates", b"[]"))]
        call_id = fields.get(b"id", b"unreadable").decode()
        if is_cancelled:
            self.delivered_cancelled.add(call_id)
        return stream, entry, call_id, gates

    def fields(self, delivery: tuple[str, str, str, list[Gate]]) -> dict[bytes, bytes]:
        """The entry of a delivery."""
        stream, entry, _, _ = delivery
        [(_, fields)] = cast("list[tuple[bytes, dict[bytes, bytes]]]", self.client.xrange(stream, entry, entry))
        return fields

    def settle(
        self, delivery: tuple[str, str, str, list[Gate]], consumer: str = "worker", sealed: str = RETURNED_RESULT
    ) -> None:
        stream, entry, call_id, gates = delivery
        places = [name_of(gate) for gate in gates if gate.kind == "concurrency"]
        args: list[str | int] = [self.keys.job(""), stream, consumer, self.keys.result(""), self.keys.replies("o"), 1]
        self._scripts[SETTLE](args=[*args, entry, call_id, sealed, len(places) if gates else "", *places])

    def postpone(
        self, delivery: tuple[str, str, str, list[Gate]], ms: int, call: Call | None = None, consumer: str = "worker"
    ) -> None:
        stream, entry, call_id, _ = delivery
        call = call or Call(call_id, tenant="a", run_id="r")
        args: list[str | int] = [GROUP, consumer, entry, stream, ms, self.keys.claim(""), call_id]
        args += [call.tenant, call.run_id, int(call.ends_ms)]
        assert self._scripts[POSTPONE](keys=[stream, self.keys.scheduled(self.queue)], args=args) == 1

    def say(self, of: str, said: dict[str, float]) -> None:
        """Say something of a limit, as people do."""
        self.client.hset(self.keys.limits(), of, json.dumps(said))
        self.client.incr(self.keys.limits_said())

    def purge_room(self) -> int:
        return sum(iter(self.purge_some, 0))

    def purge_some(self) -> int:
        return int(self._scripts[PURGE_ROOM](keys=self.homes[:1]))

    @property
    def waiting(self) -> set[str]:
        bound = cast("list[bytes]", self.client.hkeys(self.keys.room_calls(self.queue)))
        lines = self.client.scan_iter(self.keys.room_plain_line(self.queue, "*"))
        plain = [call_id for line in lines for call_id in cast("list[bytes]", self.client.lrange(line, 0, -1))[3::6]]
        return {name.decode() for name in (*bound, *plain)}
