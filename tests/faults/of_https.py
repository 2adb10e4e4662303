"""A worker that reaches the API over HTTP only, and is cut off from it for two thirds of a lease."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

from tests.cli.command import Terminal, read_until
from tests.faults.arena import LEASE_S, ROOT, Arena, Form, fault, mortal_fleet, until
from tests.faults.fault_tools import LEDGER
from tests.faults.load import OVER_HTTPS
from tests.http.serving import serving
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.testing import FaultyServer, Proxy
from toolfleet.wire import Seal

STAND = "over https"
LEASE_OF_USERS_S = 30.0
"""As it is where nobody has set another."""


class HttpsArena(Arena):
    """A server of the API, a proxy in front of it, and a worker that knows the proxy's address and its key alone."""

    queues = tuple(f"work.{tool}" for tool in OVER_HTTPS)
    between: Proxy

    @classmethod
    @asynccontextmanager
    async def open(cls, stand: str, ledger: Path, form: Form, seed: str) -> AsyncIterator[Self]:
        lease_s = LEASE_OF_USERS_S if form is Form.LONG else LEASE_S
        async with AsyncExitStack() as stack:
            server = FaultyServer()
            tools = "tests.faults.fault_tools"
            fleet = await stack.enter_async_context(mortal_fleet(server, tools, ROOT, ledger, lease_s=lease_s))
            arena = cls(server, fleet, ledger, form, seed)
            folder = ledger.with_name("of https")
            folder.mkdir(exist_ok=True)
            served = serving(fleet.settings, folder)
            url = (await asyncio.to_thread(served.__enter__)).url
            stack.push_async_callback(asyncio.to_thread, served.__exit__, None, None, None)
            arena.between = stack.enter_context(Proxy(url.replace("http://", "redis://")))
            worker = _worker(folder, re.sub("^redis", "http", arena.between.url), await arena._key(), ledger)
            await asyncio.to_thread(worker.__enter__)
            stack.push_async_callback(asyncio.to_thread, worker.__exit__, None, None, None)
            yield arena

    async def prepare(self) -> None:
        """The worker is there, or nothing is in order."""

    async def _key(self) -> str:
        async with connect_async(self.settings) as client:
            keyring = Keyring(client, self.settings, Seal(self.settings))
            key, _ = await keyring.add(scopes=(Scope.WORK,), tools=OVER_HTTPS)
        return key


@contextmanager
def _worker(folder: Path, url: str, key: str, ledger: Path):
    variables = {"TOOLFLEET_WORKER_KEY": key, LEDGER: str(ledger), "PYTHONPATH": str(ROOT)}
    words = ("worker", "--over", url, "--import", "tests.faults.over_https_tools", "--name", "laptop")
    with Terminal(folder, variables).start(*words) as process:
        read_until(process, "Ready")
        yield


@fault(
    "a worker over HTTPS is cut off for two thirds of a lease (20 of 30 s in the long form)",
    once=1,
    short=3,
    long=2,
    stand=STAND,
)
async def cut_off_over_https(arena: HttpsArena, times: int) -> None:
    catalog = arena.load.orchestrator.catalog
    async with asyncio.timeout(30):
        while not set(OVER_HTTPS) <= set(await catalog.offered()):
            await asyncio.sleep(0.05)
    lease_s = arena.settings.lease_s
    async with arena.load.running(conversations=4, calls=3, seconds=0.3, tools=OVER_HTTPS):
        for _ in range(times):
            await asyncio.sleep(0.5 + arena.rng.random())
            async with arena.injecting():
                arena.between.refuse()
                await asyncio.sleep(lease_s * 2 / 3)
                arena.between.admit()
            await arena.recovered()
    await until(lambda: all(ask.outcome or ask.error for ask in arena.load.asks))
    again = [ask.nonce for ask in arena.load.asks if ask.outcome != "returned"]
    arena.expect(not again, f"{len(again)} calls did not stay with their worker")
