"""Where a fault happens: a server, a fleet, an orchestrator and a ledger, put in order again before each fault."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import redis

from tests.faults.fault_tools import LEDGER
from tests.faults.judge import Injection, Tally, entries_of, judge
from tests.faults.load import Load
from toolfleet.connections import connect_async
from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings, new_secret
from toolfleet.testing import FaultyServer, MortalFleet

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

LEASE_S = 2.5
HEARTBEAT_S = 0.5
MAX_DELIVERIES = 3
NOTHING: Mapping[str, str] = {}

QUIET_WITHIN_S = 20.0


class Form(StrEnum):
    """How much is done."""

    LONG = "long"
    SHORT = "short"
    ONCE = "once"
    """Each fault once, as in the test suite."""


@dataclass(frozen=True)
class Fault:
    """A fault: its name, what happens, how it is made to happen, and how often in each form."""

    name: str
    what: str
    inject: Callable[[Arena, int], Awaitable[None]]
    times: dict[Form, int]
    stand: str


FAULTS: dict[str, Fault] = {}


def fault(
    what: str, *, once: int = 1, short: int = 3, long: int = 10, stand: str = "usual"
) -> Callable[[Callable[[Arena, int], Awaitable[None]]], Callable[[Arena, int], Awaitable[None]]]:
    """Enter a function among the faults: it injects the fault so many times. Its name is the fault's."""

    def enter(inject: Callable[[Arena, int], Awaitable[None]]) -> Callable[[Arena, int], Awaitable[None]]:
        name = inject.__name__
        times = {Form.ONCE: once, Form.SHORT: short, Form.LONG: long}
        FAULTS[name] = Fault(name, what, inject, times, stand)
        return inject

    return enter


@asynccontextmanager
async def mortal_fleet(
    server: FaultyServer,
    tools: str,
    folder: Path,
    ledger: Path,
    variables: Mapping[str, str] = NOTHING,
    lease_s: float = LEASE_S,
    settings: Mapping[str, object] = NOTHING,
    **pools: int,
) -> AsyncIterator[MortalFleet]:
    """Start a server and a fleet on it that serves a module of the folder; what its calls do is in the ledger."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(server.__enter__)
        stack.push_async_callback(asyncio.to_thread, server.__exit__)
        fleet = MortalFleet(
            [tools],
            pools=pools,
            redis_url=server.url,
            environment={"PYTHONPATH": path, LEDGER: str(ledger), **variables},
            secret=new_secret(),
            lease_s=lease_s,
            heartbeat_s=HEARTBEAT_S,
            max_deliveries=MAX_DELIVERIES,
            shutdown_grace_s=2.0,
            **settings,
        )
        await asyncio.to_thread(fleet.__enter__)
        stack.push_async_callback(asyncio.to_thread, fleet.__exit__, None, None, None)
        yield fleet


class Arena:
    """The surroundings of faults, shared by all that leave them in order."""

    queues: Sequence[str] = ("io", "cpu")

    turn = 0
    """Which part of the matrix, or which moment of several, comes first: short forms come to each in time."""

    def __init__(self, server: FaultyServer, fleet: MortalFleet, ledger: Path, form: Form, seed: str) -> None:
        self.server = server
        self.fleet = fleet
        self.ledger = ledger
        self.form = form
        self._seed = seed

    @classmethod
    @asynccontextmanager
    async def open(cls, stand: str, ledger: Path, form: Form, seed: str) -> AsyncIterator[Self]:
        """A server with a fleet of one worker for each pool that faults need."""
        async with AsyncExitStack() as stack:
            server = FaultyServer(fsync="everysec", small_disk=True) if stand == "small disk" else FaultyServer()
            fleet = await stack.enter_async_context(
                mortal_fleet(server, "tests.faults.fault_tools", ROOT, ledger, io=1, cpu=1)
            )
            yield cls(server, fleet, ledger, form, seed)

    @property
    def settings(self) -> Settings:
        return self.fleet.settings

    async def suffer(self, fault: Fault) -> Suffered:
        """Let a fault happen as often as the form says, and wait until all has come to rest."""
        self.rng = random.Random(f"{self._seed}:{fault.name}")
        self.injections: list[Injection] = []
        self.notes: list[str] = []
        began_s = time.monotonic()
        await self.prepare()
        async with Orchestrator(settings=self.settings) as orchestrator:
            self.load = Load(orchestrator, self.rng)
            try:
                await fault.inject(self, fault.times[self.form])
                await self._rest()
            except (ExceptionGroup, OSError, RuntimeError, ToolfleetError, redis.RedisError) as error:
                self.notes.append(f"the fault could not be made to happen: {_named(error)}")
        return Suffered(fault, self.load, self.injections, self.notes, self.ledger, time.monotonic() - began_s)

    async def prepare(self) -> None:
        """Put it in order for the next fault."""
        await self.replenish(io=1, cpu=1)

    async def replenish(self, **pools: int) -> None:
        """So many live workers of each pool."""
        await asyncio.to_thread(self.fleet.replenish, **pools)

    async def ready(self) -> None:
        """Every worker has announced itself."""
        await asyncio.to_thread(self.fleet.wait_until_ready)

    def injected(self, at_s: float | None = None) -> None:
        """It happened, at once."""
        now = at_s or time.monotonic()
        self.injections.append(Injection(now, now))

    @asynccontextmanager
    async def injecting(self) -> AsyncIterator[None]:
        """It goes on while inside."""
        began = time.monotonic()
        yield
        self.injections.append(Injection(began, time.monotonic()))

    async def recovered(self) -> None:
        """Until every call that was under way has its answer, so that the next injection does not delay it again."""
        now = time.monotonic()
        under_way = [ask for ask in self.load.asks if ask.sent_s <= now and not (ask.outcome or ask.error)]
        await until(lambda: all(ask.outcome or ask.error for ask in under_way))

    def expect(self, condition: Any, otherwise: str) -> None:
        """Something beyond the fate of calls has to hold."""
        if not condition:
            self.notes.append(otherwise)

    async def _rest(self) -> None:
        """Until no message is queued or held: what a late worker might still do has been done."""
        give_up = time.monotonic() + QUIET_WITHIN_S
        keys = self.settings.keys
        streams = [keys.queue(queue, level) for queue in self.queues for level in (0, 3, 6)]
        async with connect_async(self.settings) as client:
            while time.monotonic() < give_up:
                left = sum([await client.xlen(stream) for stream in streams])
                if not left:
                    return
                await asyncio.sleep(0.05)
        self.notes.append(f"{left} messages were still in the queues after {QUIET_WITHIN_S:g} s")


@dataclass(frozen=True)
class Suffered:
    """A fault that has happened."""

    fault: Fault
    load: Load
    injections: list[Injection]
    notes: list[str]
    ledger: Path
    seconds: float

    entries: dict[str, list[str]] | None = None
    """The ledger as it was in the end, once it is known."""

    def tally(self) -> Tally:
        """The figures, by the ledger as it is."""
        entries = entries_of(self.ledger) if self.entries is None else self.entries
        return judge(self.load.asks, entries, self.injections, self.notes)

    def at_last(self) -> Suffered:
        """The same with the ledger's last word, which may then be removed."""
        return replace(self, entries=entries_of(self.ledger))


def _named(error: BaseException) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    said = f"{type(error).__name__}: {error}"
    return said if len(said) < 1200 else f"{said[:200]} … {said[-1000:]}"


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> float:
    """Wait for a condition that tells of no event; the time at which it held. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not condition():  # processes and files tell of no event
            await asyncio.sleep(0.01)
    return time.monotonic()


async def counted(settings: Settings, name: str) -> int:
    """One of the fleet's counters."""
    async with connect_async(settings) as client:
        return int(await client.hget(settings.keys.counters(), name) or 0)
