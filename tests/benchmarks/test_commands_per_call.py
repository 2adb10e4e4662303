"""What one call costs Redis, counted by Redis and not by a clock: nobody adds a command or a round trip unseen.

The bounds are what it takes today. Whoever needs less lowers them; whoever needs more says in the commit what for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.asking_model import AskingModel
from benchmarks.commands import Counted, counted
from benchmarks.limits_figures import LIMITED
from benchmarks.own_figures import one_call, run_to_its_end
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

LONE_CALL = Counted(
    reads=4,  # publish, read, settle, hear
    commands={
        "evalsha": 3,  # to publish, to claim, to settle
        "xreadgroup": 1,
        "xread": 1,
        "xadd": 2,
        "xack": 1,
        "xdel": 1,
        # Whose the call is; and before that, which one the read has brought, and what it says of itself:
        "xpending": 2,
        "xrange": 1,
        "set": 2,
        # One of them whether anything waits in the queue's room; if not, it goes straight into a stream that is short.
        "exists": 3,
        "xlen": 1,
        "expire": 1,
        # That it has ended, and how: of a batch once for each kind of end, and not by a process that may be killed.
        "hincrby": 1,
    },
)
BELOW_ITS_LIMITS = Counted(
    reads=LONE_CALL.reads,
    commands={
        **LONE_CALL.commands,
        "time": 1,
        "hmget": 4,  # how many calls workers take, what is said of the tool, how far the rate is; whose the place is
        "hget": 1,  # whether the concurrency pauses
        "hset": 2,  # a start, and a place
        "pexpire": 1,
        "hdel": 1,
        "hlen": 1,  # how many places are taken
        "exists": 4,  # as above, and whether anybody waits for the place that is free again
        "xlen": 3,  # what goes into a stream has taken its start, so all levels are to be short enough
    },
)
"""Of a tool with a rate and a concurrency: a lone call makes no round trip more."""
# Whose calls are, and whether they were cancelled or have results, is asked once of all in a script; and all that are
# settled together are told of together. Claims are written together, and so are results: two commands for many calls.
CALL_IN_A_BURST = Counted(reads=0, commands={"xadd": 1})
RUN_OF_ONE_TURN = Counted(
    # Those of its call, and begin, reply, calls sent and back, answer. Runs that have ended are packed many at once.
    reads=8,
    commands={
        "evalsha": 8,
        "xreadgroup": 1,
        "xread": 1,
        "xadd": 7,
        "xrevrange": 5,
        "xack": 1,
        "xdel": 1,
        "xpending": 2,
        "set": 3,  # one of them notes what the model has called its call
        "exists": 3,
        "expire": 1,
        "pexpire": 10,
        "time": 5,
        "hset": 5,
        "hmget": 1,  # whose it was, and whether clients of A2A are told of it
        "hincrby": 1,
        "hdel": 1,
        "sadd": 1,
        "srem": 2,
        "zadd": 9,  # four of them say in which state the run is: one in each script that writes to it
        "zrange": 1,
        "xlen": 2,  # one of them to be packed
        # To be packed:
        "memory|usage": 1,
        "xrange": 2,  # one of them to claim
        "pttl": 1,
        "copy": 1,
        "del": 1,
    },
)
LIMITS_IN_A_BURST = 1.15
"""What limits may add to a burst's commands, for each of which the server needs its time: seen is 1.04."""
COUNTED_AT_MOST = 3
ROUND_TRIPS_OF_A_BURST = 200
"""Of a thousand calls. Batches are as large as the moment makes them, so this is three times what is seen."""


@dataclass(frozen=True)
class Counter:
    """A fleet on a server of its own, warmed up, and what its server counts."""

    orchestrator: Orchestrator
    client: Redis

    async def times(self, n: int, work: Callable[[], Awaitable[Any]]) -> tuple[Counted, Counted]:
        async def one_after_another() -> None:
            for _ in range(n):
                await work()

        return await counted(self.client, one_after_another)

    async def commands_of(self, n: int, work: Callable[[], Awaitable[Any]]) -> int:
        """How many commands `n` times the work take, with what the fleet does beside it."""
        busy, _ = await self.times(n, work)
        return sum(busy.commands.values())

    async def more(self, most: Counted, n: int, work: Callable[[], Awaitable[Any]], *, pieces: int = 1) -> list[str]:
        """What `n` times the work need more of than they may, for each piece of it.

        Counted again where there is anything: what a busy machine's fleet does beside it is not the same each time.
        """

        for _ in range(COUNTED_AT_MOST):
            busy, idle = await self.times(n, work)
            if not (more := grown(busy.for_each(n * pieces, idle), most)):
                break
        return more

    async def lone_call(self) -> None:
        (answer,) = await self.orchestrator.execute(one_call())
        assert answer.content == '{"x":1}'

    async def burst(self) -> None:
        assert len(await self.orchestrator.execute(one_call(1000))) == 1000

    async def limited_call(self) -> None:
        (answer,) = await self.orchestrator.execute(one_call(1, LIMITED))
        assert answer.content == '{"x":1}'

    async def limited_burst(self) -> None:
        assert len(await self.orchestrator.execute(one_call(1000, LIMITED))) == 1000

    async def run(self) -> None:
        await run_to_its_end(self.orchestrator, 1)


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    with LocalFleet(["benchmarks.contenders.toolfleet_tools"], pools={"io": 1}) as running:
        yield running


@pytest.fixture
async def counter(fleet: LocalFleet) -> AsyncIterator[Counter]:
    async with (
        connect_async(fleet.settings) as client,
        Orchestrator(AskingModel("noop"), settings=fleet.settings) as orchestrator,
    ):
        counter = Counter(orchestrator, client)
        calls = (counter.lone_call, counter.limited_call, counter.burst, counter.limited_burst)
        for once in (*calls, counter.run):  # scripts are loaded, connections made
            await once()
        yield counter


def grown(found: Counted, most: Counted) -> list[str]:
    """What there is more of than there may be, in words."""
    commands = [
        f"{calls} {name.upper()} instead of at most {most.commands.get(name, 0)}"
        for name, calls in sorted(found.commands.items())
        if calls > most.commands.get(name, 0)
    ]
    trips = [f"{found.reads} round trips instead of at most {most.reads}"] if found.reads > most.reads else []
    return trips + commands


async def test_a_lone_call_sends_redis_no_more_commands_than_it_needs(counter: Counter):
    assert await counter.more(LONE_CALL, 200, counter.lone_call) == []


async def test_a_call_in_a_burst_sends_redis_no_more_commands_than_it_needs(counter: Counter):
    assert await counter.more(CALL_IN_A_BURST, 5, counter.burst, pieces=1000) == []
    busy, idle = await counter.times(5, counter.burst)
    assert busy.for_each(5, idle).reads <= ROUND_TRIPS_OF_A_BURST


async def test_a_run_of_one_turn_sends_redis_no_more_commands_than_it_needs(counter: Counter):
    assert await counter.more(RUN_OF_ONE_TURN, 100, counter.run) == []


async def test_F12_a_lone_call_below_its_limits_makes_no_round_trip_more(counter: Counter):
    assert await counter.more(BELOW_ITS_LIMITS, 200, counter.limited_call) == []


async def test_F12_a_burst_below_its_limits_asks_them_once_for_many_calls(counter: Counter):
    for _ in range(COUNTED_AT_MOST):
        bare, limited = [await counter.commands_of(5, burst) for burst in (counter.burst, counter.limited_burst)]
        if limited <= LIMITS_IN_A_BURST * bare:
            break
    assert limited <= LIMITS_IN_A_BURST * bare


def test_what_is_counted_is_told_by_the_command_that_grew():
    before = Counted({"set": 10, "get": 5}, reads=100)
    after = Counted({"set": 410, "get": 6, "mget": 100}, reads=301)

    each = after.since(before).for_each(100, idle=Counted({"set": 90}, reads=0))

    assert each == Counted({"set": 3, "mget": 1}, reads=2)
    assert grown(each, Counted({"set": 2}, reads=1)) == [
        "2 round trips instead of at most 1",
        "1 MGET instead of at most 0",
        "3 SET instead of at most 2",
    ]
