"""Who waits how long when a queue is full, first come first served and by the room: `python -m benchmarks.fairness`.

A simulation of the workers alone: the scripts are the transport's own and run on a real server, by a clock that is set.
First in, first out is the same scripts with every call as of one tenant and one run.
"""

from __future__ import annotations

import heapq
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.room_transport import Transport
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.streams import GROUP
from toolfleet.waiting.model import Call

SLOTS = 10
SERVICE_MS = 1000
PUBLISHED_AT_ONCE = 200
BACKLOG = 100_000
PAIRS = 3
READ_AT_ONCE = 500


class Start(NamedTuple):
    """A call that began to run."""

    call: Call
    waited_ms: int


class Fleet:
    """Workers with ten slots, whose calls take a second each."""

    def __init__(self, client: Redis, *, is_fair: bool) -> None:
        self.transport = Transport(client)
        self.is_fair = is_fair
        self.transport.fetch(SLOTS, SLOTS)
        self._began_ms = self.transport.now
        self._sent: dict[str, tuple[Call, int]] = {}
        self._running: list[tuple[int, int, Any]] = []
        self._number = 0

    def send(self, calls: Iterable[tuple[str, str]], level: int = 3) -> list[Call]:
        """Publish a call for each tenant and run."""
        made = []
        for tenant, run in calls:
            self._number += 1
            whose = (tenant, run) if self.is_fair else ("", "")
            sent = Call(f"{self._number:09}", level if self.is_fair else 3, *whose)
            made.append(sent)
            self._sent[sent.call_id] = Call(sent.call_id, level, tenant, run), self.transport.now
        for at in range(0, len(made), PUBLISHED_AT_ONCE):
            self.transport.publish(made[at : at + PUBLISHED_AT_ONCE])
        return made

    def begin(self) -> list[Start]:
        """Start what the free slots can take."""
        free = SLOTS - len(self._running)
        starts = []
        for delivery in self.transport.fetch(free, SLOTS) if free else ():
            call, sent_ms = self._sent.pop(delivery[2])
            starts.append(Start(call, self.transport.now - sent_ms))
            self._number += 1
            heapq.heappush(self._running, (self.transport.now + SERVICE_MS, self._number, delivery))
        return starts

    def next_end(self) -> None:
        """Go on to when the next call ends. Ends are a tenth of a second apart at the beginning, as in a busy fleet."""
        ends_ms, _, delivery = heapq.heappop(self._running)
        self.transport.advance(max(0, ends_ms - self.transport.now))
        self.transport.settle(delivery)

    def warm_up(self) -> None:
        """Take up the first calls one by one, so that slots do not all become free at once."""
        for _ in range(SLOTS):
            for delivery in self.transport.fetch(1, SLOTS):
                self._sent.pop(delivery[2])
                self._number += 1
                heapq.heappush(self._running, (self.transport.now + SERVICE_MS, self._number, delivery))
            self.transport.advance(SERVICE_MS // SLOTS)

    def starts(self, most: int) -> list[Start]:
        """Run until so many calls have begun."""
        begun = self.begin()
        while len(begun) < most and self._running:
            self.next_end()
            begun += self.begin()
        return begun


def backlog(fleet: Fleet, tenant: str, calls: int, run: str = "r") -> None:
    fleet.send([(tenant, run)] * calls)


def lone_call(client: Redis, *, is_fair: bool) -> str:
    """F2: one tenant has 10,000 calls waiting, another sends one."""
    fleet = Fleet(client, is_fair=is_fair)
    backlog(fleet, "many", 10_000)
    fleet.warm_up()
    fleet.send([("one", "r")])
    for start in fleet.starts(11_000):
        if start.call.tenant == "one":
            return f"waits {start.waited_ms / SERVICE_MS:g} service times"
    raise AssertionError("it never began")


def weights(client: Redis, *, is_fair: bool) -> str:
    """F3: weights 1:3, both with a backlog; after 1,000 starts turned round."""
    fleet = Fleet(client, is_fair=is_fair)
    for tenant, weight in (("a", 1), ("b", 3)):
        client.hset(fleet.transport.keys.tenants(), tenant, f'{{"weight": {weight}}}')
    for tenant in "ab":
        backlog(fleet, tenant, 2500)
    fleet.warm_up()
    before = Counter(start.call.tenant for start in fleet.starts(1000)[:1000])
    client.hset(fleet.transport.keys.tenants(), mapping={"a": '{"weight": 3}', "b": '{"weight": 1}'})
    after = Counter(start.call.tenant for start in fleet.starts(1000)[:1000])
    return f"{before['a']}:{before['b']}, then {after['a']}:{after['b']}"


def small_tenants(client: Redis, *, is_fair: bool) -> str:
    """F4: one tenant has 100,000 calls waiting; 2,000 others send one each, a fifth of what the fleet can do."""
    fleet = Fleet(client, is_fair=is_fair)
    backlog(fleet, "many", 100_000)
    fleet.warm_up()
    waits: list[int] = []
    for number in range(2000):
        fleet.send([(f"small{number}", "r")])
        waits += [start.waited_ms for start in fleet.starts(5) if start.call.tenant != "many"]
    if len(waits) < 1000:
        return f"{2000 - len(waits)} of 2,000 still wait"
    return f"p99 {statistics.quantiles(waits, n=100)[98] / SERVICE_MS:g} service times"


def shares_of_a_burst(client: Redis, *, is_fair: bool) -> str:
    """F7: guaranteed 2, ceiling 10: alone, and as nine others come."""
    fleet = Fleet(client, is_fair=is_fair)
    client.hset(fleet.transport.keys.tenants(), "a", '{"guaranteed": 2, "ceiling": 10}')
    backlog(fleet, "a", 2000)
    alone = len(fleet.begin())
    for number in range(9):
        backlog(fleet, f"other{number}", 200)
    fleet.starts(100)
    busy = Counter(start.call.tenant for start in fleet.starts(1000))
    return f"{alone} of {SLOTS} slots, then {busy['a'] / sum(busy.values()) * SLOTS:.1f}"


def one_reply(client: Redis, *, is_fair: bool) -> str:
    """F13: one run asks for 500 calls in one reply, then ten others of the same tenant ask for one each."""
    fleet = Fleet(client, is_fair=is_fair)
    backlog(fleet, "t", 500, run="large")
    fleet.warm_up()
    fleet.send([("t", f"small{number}") for number in range(10)])
    waits = [start.waited_ms for start in fleet.starts(520) if start.call.run_id.startswith("small")]
    return f"waits {max(waits) / SERVICE_MS:g} service times at most"


def person_and_batch(client: Redis, *, is_fair: bool) -> str:
    """F15: a batch of 20,000 runs, a person asks; then people keep the fleet busy."""
    fleet = Fleet(client, is_fair=is_fair)
    fleet.send([("t", f"line{number}") for number in range(20_000)], level=6)
    fleet.warm_up()
    fleet.send([("t", "person")], level=0)
    first = next((s.waited_ms for s in fleet.starts(100) if s.call.level == 0), None)
    fleet.send([("t", f"person{number}") for number in range(2000)], level=0)
    busy = Counter(start.call.level for start in fleet.starts(1000)[:1000])
    said = f"waits {first / SERVICE_MS:g} service times" if first is not None else "still waits after 100 starts"
    return f"{said}; then batch {busy[6] / 10:g} % of the starts"


SCENES = {
    "F2 another tenant's lone call": lone_call,
    "F3 weights 1:3, turned to 3:1": weights,
    "F4 2,000 small tenants beside 100,000 calls": small_tenants,
    "F7 guaranteed 2, ceiling 10": shares_of_a_burst,
    "F13 other runs beside a reply of 500 calls": one_reply,
    "F15 a person beside a batch": person_and_batch,
}


def moves_per_s(client: Redis, tenants: int, calls: int) -> float:
    """How many messages a second of the server's processor moves from the room to workers, reading them included."""
    fleet = Fleet(client, is_fair=True)
    backlog(fleet, "many", calls)
    fleet.send([(f"small{number}", "r") for number in range(tenants)])
    before_s, moved = processor_s(client), 0
    while moved < min(10_000, calls + tenants):
        moved += len(fleet.transport.fetch(100, SLOTS))
    return moved / (processor_s(client) - before_s)


def dispatch_us(client: Redis, tenants: int, calls: int) -> float:
    """The server's processor time for each dispatch, reading included, until nobody waits."""
    fleet = Fleet(client, is_fair=True)
    backlog(fleet, "many", calls)
    fleet.send([(f"small{number}", "r") for number in range(tenants)])
    left, used_s = calls + tenants, 0.0
    while left:
        before_s = processor_s(client)
        found = fleet.transport.fetch(READ_AT_ONCE, READ_AT_ONCE)
        used_s += processor_s(client) - before_s
        left -= len(found)
        ended = client.pipeline(transaction=False)
        for stream, entry, *_ in found:
            ended.xack(stream, GROUP, entry)
            ended.xdel(stream, entry)
        ended.execute()
    return 1e6 * used_s / (calls + tenants)


def bytes_per_waiting_call(client: Redis, tenants: int, calls: int) -> float:
    """What a waiting call takes beside its message, which is made empty here."""
    fleet = Fleet(client, is_fair=True)
    before = int(client.info("memory")["used_memory"])
    fleet.send([(f"tenant{number % tenants}", "r") for number in range(calls)])
    return (int(client.info("memory")["used_memory"]) - before) / calls


def processor_s(client: Redis) -> float:
    """Return what the server's one busy thread has used of its processor: a loaded machine does not change it much."""
    used: dict[str, Any] = client.info("cpu")
    return float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"])


def rows(client: Redis, scenes: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    for name in scenes:
        yield name, SCENES[name](client, is_fair=False), SCENES[name](client, is_fair=True)


def main() -> None:
    """Print who waits how long, and what it costs the server."""
    console, began_s = Console(), time.monotonic()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, EmbeddedServer(Path(folder)) as server:
        client = Redis.from_url(server.url, protocol=2)
        table = Table("", "first in, first out", "waiting room")
        for row in rows(client, list(SCENES)):
            table.add_row(*row)
        console.print(table)
        moves = [(moves_per_s(client, 0, BACKLOG), moves_per_s(client, 10_000, BACKLOG)) for _ in range(PAIRS)]
        one, many = (statistics.median(each) for each in zip(*moves, strict=True))
        console.print(f"moves a second: {one:,.0f} with one tenant, {many:,.0f} while 10,001 take turns")
        costs = [(dispatch_us(client, 0, BACKLOG), dispatch_us(client, 10_000, BACKLOG)) for _ in range(PAIRS)]
        dearer = statistics.median(many / one for one, many in costs) - 1
        console.print(f"F4 cost per dispatch of 100,000 calls, with 10,000 tenants' one call each: {dearer:+.0%}")
        for tenants in (1, 10_000):
            size = bytes_per_waiting_call(client, tenants, 10_000)
            console.print(f"bytes in Redis per waiting call beside its message, {tenants} tenants: {size:,.0f}")
        client.close()
    console.print(f"{time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    typer.run(main)
