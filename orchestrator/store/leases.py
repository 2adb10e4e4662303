"""Who owns which runs: one lease for each orchestrator, however many it has, and the way from a lapsed one to the next.

Moves run ids between sets in Redis; knows nothing of what a run is. Server time throughout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast

import orjson
import redis
import redis.asyncio

from toolfleet.keys import BEAT_TTL_S
from toolfleet.logs import FactLog
from toolfleet.orchestrator.store.epoch import StoreEpoch, Suspicion
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.signs_of_life import LEASE, SignOfLife
from toolfleet.skipped import text_of
from toolfleet.supervision import Kept, Supervisor
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

LOOK_EVERY_S: Final = 1.0
"""How long a run that was handed over waits for its next owner."""

SEEN_LAPSED_S: Final = 3.0
"""How long a lease must be seen lapsed, by our own clock, before its runs are taken: after a pause of Redis every lease
has lapsed, and the living renew theirs within a second."""

ADOPT_AT_ONCE: Final = 500

TRIMMED_AT_ONCE: Final = 100
"""How many runs whose records have ended leave the lists at most when the lease is renewed: about a millisecond's work.
Two more do whenever a run begins, so that lists never grow faster than they are trimmed."""

GIVE_UP_WITHIN_S: Final = 5.0
"""How long an orchestrator that stops waits for Redis to hear that its runs may be taken."""

RENEW: Final = lua(__package__, "trim_runs", "renew_lease", before=CLOCK)
RELEASE: Final = lua(__package__, "release_runs", before=CLOCK)
ADOPT: Final = lua(__package__, "adopt_runs")


class Living(NamedTuple):
    """An orchestrator whose lease has not lapsed; `model` is "" for one that adopts no runs."""

    orchestrator_id: str
    model: str


async def living(client: redis.asyncio.Redis, settings: Settings) -> list[Living]:
    """Return the orchestrators whose leases have not lapsed, by id. Raises StoreUnreachable."""
    keys = settings.keys
    found = cast("list[bytes]", await client.zrange(keys.orchestrators(), 0, -1))
    names = sorted(text_of(each) for each in found)
    leases = cast("list[bytes | None]", await client.mget([keys.orchestrator(name) for name in names] or ["-"]))
    return [Living(name, text_of(model)) for name, model in zip(names, leases, strict=False) if model is not None]


async def give_up_runs_of(client: redis.asyncio.Redis, settings: Settings, orchestrator_id: str) -> None:
    """Let the runs of an orchestrator be adopted at once: whoever calls this knows that it is gone.

    Raises StoreUnreachable.
    """
    release = client.register_script(RELEASE)
    while await _release_next_runs(release, settings, orchestrator_id, is_given_up=True):
        continue


async def _release_next_runs(
    release: Callable[..., Awaitable[int]], settings: Settings, orchestrator_id: str, *, is_given_up: bool
) -> int:
    """Move some runs of an orchestrator to those that nobody owns. Returns how many it has left."""
    keys, ttl_ms = settings.keys, int(settings.keep_unfinished_s * 1000)
    return await release(
        keys=[keys.orchestrators(), keys.orchestrator(orchestrator_id), keys.owned(orchestrator_id)],
        args=[orchestrator_id, int(is_given_up), ADOPT_AT_ONCE, keys.head(""), keys.unowned(""), ttl_ms],
    )


class Leases:
    """Keeps up this orchestrator's lease, and takes over the runs of lapsed ones.

    `on_adopted` is called with the ids of runs that are this orchestrator's, once it has written so into them.
    `on_older_store` is called when the store may have lost what was written to it, until it returns. The lease is
    renewed meanwhile, and no run is taken over: what is stored of it may be older than what others know.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        orchestrator_id: str,
        *,
        model: str | None,
        on_adopted: Callable[[Sequence[str]], None],
        supervisor: Supervisor,
        on_older_store: Callable[[Suspicion], Awaitable[None]],
    ) -> None:
        self._keys = settings.keys
        self._settings = settings
        self._id = orchestrator_id
        self._model = model
        self._on_adopted = on_adopted
        self._supervisor = supervisor
        self._on_older_store = on_older_store
        self._epoch = StoreEpoch()
        self._suspicions: list[Suspicion] = []
        self._is_suspected = asyncio.Event()
        self._proofs = orjson.dumps(Seal(settings).proofs(orchestrator_id))
        self._renew_script = client.register_script(RENEW)
        self._release_script = client.register_script(RELEASE)
        self._adopt_script = client.register_script(ADOPT)
        self._ttl_ms = int(settings.keep_unfinished_s * 1000)
        self._sign = SignOfLife(settings.alive_dir, LEASE)
        self._lapsed_since: dict[str, float] = {}
        self._kept: list[Kept] = []
        self._closing = False

    async def start(self) -> None:
        """Take the lease, then renew it and look for lapsed ones until `aclose`. Raises StoreUnreachable."""
        await self._renew()
        self._kept = [self._supervisor.keep("lease", self._keep), self._supervisor.keep("healing", self._look_back)]

    async def aclose(self) -> None:
        """Stop renewing the lease, and give every run up for adoption at once."""
        self._closing = True
        await asyncio.gather(*(kept.aclose(within_s=2 * LOOK_EVERY_S) for kept in self._kept))
        with suppress(*COMMAND_FAILED, TimeoutError):  # then the lease lapses by itself
            async with asyncio.timeout(GIVE_UP_WITHIN_S):
                while await self._release_next_runs(self._id, is_given_up=True):
                    continue

    async def _keep(self) -> None:
        every_s = min(LOOK_EVERY_S, self._settings.heartbeat_s)
        while not self._closing:
            try:
                lapsed = await self._renew()
                if not self._suspicions:
                    await self._take_from(lapsed)
                    await self._adopt_all()
            except COMMAND_FAILED as error:
                log.warning("lease_not_renewed", orchestrator_id=self._id, error=str(error))
                self._sign.show()  # the server is away, or refuses, which is no fault of this process
            await asyncio.sleep(every_s)

    async def _renew(self) -> list[str]:
        """Renew the lease. Returns the orchestrators whose leases have lapsed."""
        keys = self._keys
        beat = self._epoch.next_beat(time.monotonic())
        lapsed: list[bytes]
        lapsed, found, server = await self._renew_script(
            keys=[
                *(keys.orchestrators(), keys.orchestrator(self._id), keys.owned(self._id)),
                *(keys.runs(), keys.runs_ending(), keys.run_names(), keys.run_states()),
                *(keys.orchestrator_proofs(self._id), keys.beat(self._id)),
            ],
            args=[
                *(self._id, int(self._settings.lease_s * 1000), self._ttl_ms),
                *(keys.head(""), keys.runs_of(""), TRIMMED_AT_ONCE, self._model or ""),
                *(self._proofs, beat, BEAT_TTL_S),
            ],
        )
        self._sign.show()
        if suspicion := self._epoch.heard(beat, found=int(found), server=server.decode()):
            self._suspicions.append(suspicion)
            self._is_suspected.set()
        return [text_of(orchestrator_id) for orchestrator_id in lapsed]

    async def _look_back(self) -> None:
        """Have what the store may have lost looked after; again, if Redis goes away meanwhile."""
        while True:
            while self._suspicions:
                try:
                    await self._on_older_store(self._suspicions[0])
                    del self._suspicions[0]
                except COMMAND_FAILED as error:
                    log.warning("store_not_healed", orchestrator_id=self._id, error=str(error))
                    await asyncio.sleep(LOOK_EVERY_S)
            self._is_suspected.clear()
            await self._is_suspected.wait()

    async def _take_from(self, lapsed: Sequence[str]) -> None:
        now = time.monotonic()
        self._lapsed_since = {each: self._lapsed_since.get(each, now) for each in lapsed}
        for orchestrator_id, since in self._lapsed_since.items():
            if now - since >= min(SEEN_LAPSED_S, self._settings.lease_s / 3):
                log.warning("lease_lapsed", orchestrator_id=orchestrator_id)
                while await self._release_next_runs(orchestrator_id, is_given_up=False):
                    continue

    async def _release_next_runs(self, orchestrator_id: str, *, is_given_up: bool) -> int:
        script = self._release_script
        return await _release_next_runs(script, self._settings, orchestrator_id, is_given_up=is_given_up)

    async def _adopt_all(self) -> None:
        while self._model is not None and not self._closing:
            adopted: list[bytes] = await self._adopt_script(
                keys=[self._keys.unowned(self._model), self._keys.owned(self._id)],
                args=[
                    self._id,
                    ADOPT_AT_ONCE,
                    self._keys.head(""),
                    self._keys.run(""),
                    self._ttl_ms,
                ],
            )
            if not adopted:
                return
            log.info("runs_adopted", orchestrator_id=self._id, runs=len(adopted))
            self._on_adopted([text_of(run_id) for run_id in adopted])
