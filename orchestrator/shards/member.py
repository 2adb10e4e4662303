"""One shard as a process for all has it: opened when its Redis is there, looked at once a second.

Knows whether the shard may be given new runs. What a run is, that knows which serves the shard: its own orchestrator,
or its own API.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Generic, Protocol, TypeVar

from toolfleet.connections import address, connect_async
from toolfleet.errors import StoreUnreachable, ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.shard_record import is_draining
from toolfleet.shards import Shard

log = FactLog("toolfleet.orchestrator")

LOOK_EVERY_S: Final = 1.0

ANSWERS_WITHIN_S: Final = 5.0
"""A server that says nothing for so long is given no new runs until it does."""

OPENS_WITHIN_S: Final = 10.0

CLOSED: Final = "it is not open"


class Served(Protocol):
    """What serves one shard, once it is entered."""

    @property
    def is_open(self) -> bool:
        """Whether it has been entered and not been left."""

    @property
    def catalog(self) -> Catalog:
        """The workers of the shard."""

    async def __aenter__(self) -> Any:
        """Connect to the shard. Raises StoreUnreachable."""

    async def __aexit__(self, *exc_info: object) -> None:
        """Disconnect."""


S = TypeVar("S", bound=Served)


class ShardAway(StoreUnreachable):
    """One shard of several cannot be asked; `shard` names it."""

    shard = ""


class Member(Generic[S]):
    """One shard. `why_away` says why it cannot be asked now, "" while it can."""

    def __init__(self, shard: Shard, settings: Settings, served: S, *, opens_within_s: float = OPENS_WITHIN_S) -> None:
        self.name = shard.name
        self.weight = shard.weight
        self.served = served
        self.why_away = CLOSED
        self.is_draining = False
        self.has_workers = False
        self._has_said = False
        self._settings = settings
        self._opens_within_s = opens_within_s
        self._entering = asyncio.Lock()
        self._client = connect_async(settings)

    def opened(self) -> S:
        """Return what serves it. Raises ShardAway while the shard has not been reached."""
        if not self.served.is_open:
            raise self.away()
        return self.served

    def away(self) -> ShardAway:
        """Return the error that says that the shard cannot be asked now."""
        where = address(self._settings.redis_url)
        error = ShardAway(
            f"the shard {self.name} at {where} cannot be asked ({self.why_away}): its runs go on once it can, those on "
            "other shards meanwhile"
        )
        error.shard = self.name
        return error

    async def look(self) -> None:
        """See whether the shard answers, open its orchestrator once it does, and hear whether it gets new runs.

        Raises what entering an Orchestrator raises, and StoreUnreachable; `why_away` says the same.
        """
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                self.is_draining = await is_draining(self._client, self._settings)
            await self._open()
            await self._say_what_counts_here()
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                self.has_workers = bool(await self.served.catalog.workers())
        except TimeoutError:
            self.why_away = "it does not answer in time"
            raise self.away() from None
        except (ToolfleetError, *COMMAND_FAILED) as error:
            self.why_away = str(error)
            raise
        self.why_away = ""

    async def answers(self) -> bool:
        """Whether the shard answers at this moment, in one round trip."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                await self._client.ping()
        except TimeoutError:
            self.why_away = "it does not answer in time"
        except COMMAND_FAILED as error:
            self.why_away = str(error)
        return not self.why_away

    async def keep(self) -> None:
        """Look at the shard for ever, and say when it goes away and comes back."""
        while True:
            before = self.why_away
            try:
                await self.look()
                if before:
                    log.warning("shard_back", shard=self.name)
            except (ToolfleetError, *COMMAND_FAILED) as error:
                if not before:
                    log.warning("shard_away", shard=self.name, error=str(error))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _say_what_counts_here(self) -> None:
        """Say once, where tenants have budgets or shares of this shard, that they hold on it alone."""
        if not self._has_said:
            keys = self._settings.keys
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                budgets, shares = await self._client.hlen(keys.budgets()), await self._client.hlen(keys.tenants())
            self._has_said = True
            if budgets or shares:
                remedy = "give each tenant its part on every shard (docs/shards.md)"
                log.warning("counted_by_shard", shard=self.name, budgets=budgets, shares=shares, remedy=remedy)

    async def _open(self) -> None:
        async with self._entering:
            if not self.served.is_open:
                async with asyncio.timeout(self._opens_within_s):
                    await self.served.__aenter__()

    async def aclose(self) -> None:
        """Hand over what is going on there, and disconnect."""
        async with self._entering:
            self.why_away = CLOSED
            if self.served.is_open:
                await self.served.__aexit__(None, None, None)
        await self._client.aclose()
