"""A live fleet under a hail of junk: what came in is counted, and whether its processes live and go on working."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
import redis
from post import Post
from processes import lines

from tests.fuzz import inputs
from toolfleet.connections import connect
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator, rehearsal_model

AT_ONCE = 500
SERVED_WITHIN_S = 30.0
SAME_FOR_S = 2.0
FLEET_TOOLS = {"PYTHONPATH": str(Path(__file__).parents[1] / "fleet")}


class Arena:
    """One fleet, an orchestrator in this process, and an attacker who has read and kept everything so far."""

    def __init__(self, fleet: LocalFleet, orchestrator: Orchestrator, folder: Path) -> None:
        self.fleet = fleet
        self.orchestrator = orchestrator
        self.sent: Counter[str] = Counter()
        self._client = connect(fleet.settings)
        self._effects = folder / "effects"
        self._post = Post(fleet.settings)

    async def prepare(self) -> inputs.Target:
        """Have calls run, and return what an attacker has learnt from it."""
        calls = [self._post.call("write_line", {"path": str(self._effects)}) for _ in range(3)]
        for call in calls:
            self._post.send(call, claim=660)
            assert (await self._post.result())[1].content == "written"
        run = await self.orchestrator.run("What is 1?", tools=["echo"])
        [worker, *_] = await self.orchestrator.catalog.workers()
        return inputs.Target(
            keys=self.fleet.settings.keys,
            envelopes=[list(self._post.seal.close_call(call)) for call in calls],
            orchestrator=self._client.zrange(self.fleet.settings.keys.orchestrators(), 0, -1)[0].decode(),
            run_id=run.run_id,
            announcement=worker.model_dump(mode="json"),
        )

    async def suffer(self, kinds: Sequence[inputs.Input], count: int, seed: int) -> None:
        """Send so many inputs, and see after each batch that nobody is down."""
        chance, target = random.Random(seed), await self.prepare()
        for start in range(0, count, AT_ONCE):
            with self._client.pipeline(transaction=False) as pipeline:
                for _ in range(min(AT_ONCE, count - start)):
                    kind = chance.choice(kinds)
                    kind(chance, target, pipeline)
                    self.sent[kind.__name__] += 1
                await asyncio.to_thread(pipeline.execute, raise_on_error=False)  # what it meets may be junk as well
            if inputs.announcement in kinds:
                await asyncio.sleep(1.5)  # so that it is looked at
            await self.goes_on()

    async def goes_on(self) -> None:
        """Every process lives; every pool serves; the orchestrator takes runs; nothing happened twice."""
        assert [worker.name for worker in self.fleet.workers if not worker.is_running] == []
        async with asyncio.timeout(SERVED_WITHIN_S):
            for tool in ("echo", "blocking_echo"):
                assert (await self.orchestrator.call(tool, {"value": "alive"})).content == "alive", tool
            run = await self.orchestrator.run('call echo {"value": "alive"}', tools=["echo"])
            assert "alive" in run.answer, run
            assert run.run_id in {each.run_id for each in await self.orchestrator.runs()}
        assert len(lines(self._effects)) == 3, "a call that had ended ran again"

    async def counted(self) -> dict[str, int]:
        """What the fleet says of the input, once all of it was looked at."""
        keys = self.fleet.settings.keys
        give_up = time.monotonic() + SERVED_WITHIN_S
        while any(self._length(keys.queue(queue, level)) for queue in inputs.QUEUES for level in inputs.LEVELS):
            assert time.monotonic() < give_up, "some messages are still in their queues"
            await asyncio.sleep(0.1)
        # What was refused is counted now and then, and broadcasts stand in no queue that could be seen to be empty.
        before: dict[bytes, bytes] = {}
        while (now := self._client.hgetall(keys.counters())) != before:
            before = now
            await asyncio.sleep(SAME_FOR_S)
        return {name.decode(): int(count) for name, count in now.items()}

    def _length(self, stream: str) -> int:
        try:
            return int(self._client.xlen(stream))
        except redis.ResponseError:
            return 0

    def memory_bytes(self) -> int:
        """What the largest process of the fleet holds."""
        return max(
            process.memory_info().rss
            for worker in self.fleet.workers
            for process in (psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True))
        )

    async def aclose(self) -> None:
        await self._post.aclose()
        self._client.close()


async def fuzz(
    kinds: Sequence[inputs.Input], count: int, seed: int, folder: Path
) -> tuple[Counter[str], dict[str, int]]:
    """Let a fleet of its own suffer. Returns what was sent, and what was counted. Raises AssertionError."""
    with LocalFleet(["fleet_tools"], pools={"io": 1, "cpu": 1}, environment=FLEET_TOOLS) as fleet:
        async with Orchestrator(rehearsal_model(), settings=fleet.settings) as orchestrator:
            arena = Arena(fleet, orchestrator, folder)
            before = arena.memory_bytes()
            await arena.suffer(kinds, count, seed)
            counted = await arena.counted()
            assert arena.memory_bytes() < before + 150_000_000
            await arena.aclose()
            return arena.sent, counted
