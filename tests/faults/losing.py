"""Where the matrix of losses is tried: a crew of workers for every place, and one run whose calls all stand at once."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

from tests.faults.arena import HERE, Arena, Form, mortal_fleet
from tests.faults.cells import PLACES, Cell, Loss, Place, Stage, cells_of, tool_of
from tests.faults.conversing import Plan, planned_model
from tests.faults.director import Director
from tests.faults.judge import EXPIRED, IN_DOUBT, RETURNED, Ask, Injection
from tests.faults.of_orchestrators import Conversations, Holder, note_run
from tests.faults.standing import STAND
from toolfleet.connections import connect_async
from toolfleet.errors import ToolfleetError
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.run.value import Run
from toolfleet.testing import FaultyServer, Proxy

STAND_WITHIN_S = 30.0
ENDED_WITHIN_S = 60.0
FORGOTTEN_AFTER_S = 30.0
"""The time that the calls of a reply have where the server may forget them: they end then, and not before."""

ROOT = HERE.parent.parent


@dataclass
class Crew:
    """Workers for every place, behind a proxy of their own."""

    proxy: Proxy
    workers: list[WorkerProcess] = field(default_factory=list)

    def alive(self, place: Place) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.pool == place.name and worker.is_running]

    def processes(self) -> Iterator[psutil.Process]:
        """Every process of every worker that runs: children and companions, then the workers."""
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                main = psutil.Process(worker.pid)
                yield from main.children(recursive=True)
                yield main


class LossArena(Arena):
    """As any other, but with a crew, whose calls somebody directs."""

    queues = tuple(PLACES)
    director: Director
    crew: Crew

    @classmethod
    @asynccontextmanager
    async def open(cls, stand: str, ledger: Path, form: Form, seed: str) -> AsyncIterator[Self]:
        """A server, a director, and no worker yet."""
        async with AsyncExitStack() as stack:
            server = FaultyServer()
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))  # sockets want short paths
            stand_at = Path(folder, "s")
            director = await stack.enter_async_context(Director.open(stand_at))
            fleet = await stack.enter_async_context(
                mortal_fleet(server, "tests.faults.lost_tools", ROOT, ledger, {STAND: str(stand_at)})
            )
            arena = cls(server, fleet, ledger, form, seed)
            arena.director = director
            arena.crew = await arena.new_crew()
            stack.push_async_callback(arena.dismiss)
            yield arena

    async def prepare(self) -> None:
        """Man every place with as many workers as its calls need, and no more."""
        await self.man(self.crew)

    async def new_crew(self) -> Crew:
        """One without workers."""
        proxy = Proxy(self.server.port_url)
        await asyncio.to_thread(proxy.__enter__)
        return Crew(proxy)

    async def man(self, crew: Crew) -> None:
        """Start the workers that it lacks, and wait until they can take calls."""
        crew.workers = [worker for worker in crew.workers if worker.is_running]
        for place in PLACES.values():
            for _ in range(place.workers - len(crew.alive(place))):
                crew.workers.append(
                    self.fleet.start_worker(
                        place.name,
                        *("--instrument", "tests.faults.standing"),
                        *place.options,
                        environment={"TOOLFLEET_REDIS_URL": crew.proxy.url},
                    )
                )
        await self.ready()

    async def relieve(self, successors: Crew) -> None:
        """End what is left of the crew: its successors take its place."""
        await self.dismiss()
        self.crew = successors

    async def dismiss(self) -> None:
        """End the crew."""
        for worker in [worker for worker in self.crew.workers if worker.is_running]:
            await asyncio.to_thread(self.fleet.lose_machine, worker)
        await asyncio.to_thread(self.crew.proxy.__exit__)

    async def queued(self) -> int:
        """How many messages are in the queues, taken or not."""
        keys = self.settings.keys
        async with connect_async(self.settings) as client:
            return sum([await client.xlen(keys.queue(queue, level)) for queue in self.queues for level in (0, 3, 6)])


class Trial:
    """One loss at one stage: a run with a call for each cell, all of which stand there when it comes."""

    def __init__(self, arena: LossArena, loss: Loss, stage: Stage, number: int) -> None:
        self.arena = arena
        self.loss = loss
        self.server = arena.server
        self.cells = cells_of(loss, stage)
        self.stage = stage
        tools = [tool_of(PLACES[cell.place], cell.effect) for cell in self.cells]
        run = f"m{arena.rng.getrandbits(32):08x}-{number}"
        self.plan = Plan(run, turns=1, calls=len(tools), tools=tools, seconds=0.0)
        self.call_ids = [f"{run}.1.{position}" for position in range(len(tools))]
        self.asks = [self._ask(cell, *asked) for cell, asked in zip(self.cells, self.plan.asks(0), strict=True)]
        self.runs = Conversations(arena)
        self.proxy: Proxy | None = None
        """Between the orchestrator that is to be lost and the server."""
        self.holder: Holder | None = None
        self._owner: Orchestrator | None = None
        self._has_begun = False
        self.successors: Crew | None = None

    @property
    def crew(self) -> Crew:
        return self.arena.crew

    def _ask(self, cell: Cell, nonce: str, tool: str, arguments: str) -> Ask:
        ends = {RETURNED}
        if self.loss.may_repeat and not cell.effect.repeatable:
            ends.add(IN_DOUBT)
        if self.loss.forgets:
            ends |= {EXPIRED, IN_DOUBT}
        return Ask(
            nonce=nonce,
            tool=tool,
            arguments=arguments,
            # Nobody who holds it is lost: then even what may be repeated is not.
            once=not (cell.effect.repeatable and (self.loss.may_repeat or self.loss.forgets)),
            expects=frozenset(ends),
            cell=cell,
            forgotten=self.loss.forgets,
        )

    async def perform(self, act: Callable[[Trial], Awaitable[None]]) -> None:
        """Let it happen, and note what became of every call."""
        arena = self.arena
        await arena.man(arena.crew)
        async with AsyncExitStack() as stack:
            self._owner = await stack.enter_async_context(
                Orchestrator(model=planned_model(str(arena.ledger)), settings=arena.settings)
            )
            stack.push_async_callback(self._clean_up)
            arena.load.asks += self.asks
            await act(self)
            await self._note()

    async def begin(self) -> None:
        """Begin the run, and return: its calls come to stand by themselves."""
        self._has_begun = True
        self.arena.director.expect(self.stage, self.call_ids)
        options = {"turn_timeout_s": FORGOTTEN_AFTER_S} if self.loss.forgets else {}
        if self.proxy is None:
            assert self._owner
            await self._owner.start(self.plan.question, run_id=self.plan.run, **options)
        else:
            self.holder = await self.runs.hold([self.plan], {"TOOLFLEET_REDIS_URL": self.proxy.url}, **options)

    async def stand(self) -> None:
        """Return when every call of the run stands where it is to stand."""
        if not self._has_begun:
            await self.begin()
        director = self.arena.director
        await director.all_stand(STAND_WITHIN_S)
        for ask, call_id in zip(self.asks, self.call_ids, strict=True):
            ask.sent_s, ask.stood = time.monotonic(), call_id in director.pids

    @asynccontextmanager
    async def happening(self) -> AsyncIterator[None]:
        """It happens while inside; its calls go on when it has begun, with `release`."""
        began = time.monotonic()
        yield
        self.release()
        self.arena.injections.append(Injection(began, time.monotonic()))

    def release(self) -> None:
        """Let the calls go on."""
        self.arena.director.release()

    async def relief(self) -> None:
        """Have workers there that can take over what others hold."""
        self.successors = await self.arena.new_crew()
        await self.arena.man(self.successors)

    async def _note(self) -> None:
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                run = await self._ended()
        except TimeoutError:
            return  # unfinished
        except ToolfleetError as error:
            for ask in self.asks:
                ask.error = f"{type(error).__name__}: {error}"[:200]
            return
        note_run(run, self.asks)

    async def _ended(self) -> Run:
        """The run at its end; where the server has forgotten it, its owner has a while to write it again."""
        give_up = time.monotonic() + FORGOTTEN_AFTER_S
        while True:
            try:
                return await self.arena.load.orchestrator.wait(self.plan.run)
            except RunNotFound:
                if not self.loss.forgets or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(0.1)  # nothing tells of a run that is not there

    async def _clean_up(self) -> None:
        self.release()
        for holder in self.runs.holders:
            await holder.kill()
        if self.proxy is not None:
            await asyncio.to_thread(self.proxy.__exit__)
        if self.successors is not None:
            await self.arena.relieve(self.successors)
