"""The session of one command about runs and calls: a connection to look through, or an orchestrator to act with.

Finds what a person has named, and works on no run itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import redis.asyncio
import typer

from toolfleet.connections import connect_async
from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator.doors.cli.on_fleet import on_fleet
from toolfleet.orchestrator.doors.cli.telling import warn
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.shards.listing import merged
from toolfleet.orchestrator.status.call_logs import CallLogReader
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.store.leases import living
from toolfleet.orchestrator.store.run_store import Head, RunStore
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal

if TYPE_CHECKING:  # it loads models, Celery and all that works on runs
    from toolfleet.orchestrator.api import Orchestrator

T = TypeVar("T")

SHARD_ANSWERS_WITHIN_S: Final = 30.0
"""How long one shard may hold up a list of all."""


@dataclass(frozen=True, slots=True)
class Session:
    """The open connection of one command."""

    client: redis.asyncio.Redis
    settings: Settings
    store: RunStore
    overview: Overview
    logs: CallLogReader

    async def call_named(self, beginning: str) -> str:
        """Return the id of a call whose run's id may be shortened, as long as it begins only one run's.

        A call whose run is not stored is taken as it is named. Raises AmbiguousId.
        """
        run_id, *position = beginning.rsplit(".", 2)
        if len(position) != 2 or not all(part.isdigit() for part in position):
            raise typer.BadParameter(f"{beginning} is no call id, which is RUN.TURN.POSITION, for example 3f9c.1.0")
        try:
            return ".".join([await self.store.named(run_id), *position])
        except RunNotFound:
            return beginning

    async def warn_unless_somebody_goes_on(self, model: str) -> None:
        """Say on standard error that no orchestrator with this model is there, if none is, and which models are."""
        there = {each.model for each in await living(self.client, self.settings) if each.model}
        if model not in there:
            others = f" (those there have {', '.join(sorted(there))})" if there else ""
            warn(
                f"no orchestrator with the model {model} is there now{others}; the run goes on once there is one: "
                f"toolfleet orchestrator --model {model}"
            )


@asynccontextmanager
async def open_session(settings: Settings) -> AsyncIterator[Session]:
    """Open a session on a fleet; it is closed at the end of the block."""
    async with aclosing(connect_async(settings)) as client:
        seal = Seal(settings)
        yield Session(
            client=client,
            settings=settings,
            store=RunStore(client, settings, seal),
            overview=Overview(client, settings, seal),
            logs=CallLogReader(client, settings, seal),
        )


@asynccontextmanager
async def open_acting_session(settings: Settings) -> AsyncIterator[tuple[Session, Orchestrator]]:
    """Open a session, and an orchestrator that may write to runs but works on none."""
    from toolfleet.orchestrator.api import Orchestrator  # noqa: PLC0415  # takes a second, and who only looks needs none

    async with open_session(settings) as session, Orchestrator(settings=settings) as orchestrator:
        yield session, orchestrator


def look(work: Callable[[Session], Awaitable[T]]) -> T:
    """Return what `work` makes of a session on this user's fleet."""

    async def in_session(settings: Settings) -> T:
        async with open_session(settings) as session:
            return await work(session)

    return on_fleet(in_session)


def newest_of_all(limit: int | None, listed: Callable[[Session], Awaitable[Sequence[Head]]]) -> list[Head]:
    """Return what `listed` makes of a session, or of one on each shard: the newest of all, so many.

    Says on standard error which shards gave no answer. Raises StoreUnreachable if none did.
    """
    settings = read_settings()
    if not settings.is_for_all_shards:
        return list(look(listed))
    found, missing = asyncio.run(_ask_shards(settings, listed))
    for name, why in missing.items():
        warn(f"the runs of shard {name} are not listed: {why}")
    if not found:
        raise StoreUnreachable("no shard answers")
    return merged(found, missing, limit=sys.maxsize if limit is None else limit, offset=0)


async def _ask_shards(settings: Settings, listed: Callable[[Session], Awaitable[T]]) -> tuple[list[T], dict[str, str]]:
    found: list[T] = []
    missing: dict[str, str] = {}
    for name in settings.all_shards.names:
        try:
            async with asyncio.timeout(SHARD_ANSWERS_WITHIN_S), open_session(settings.of_shard(name)) as session:
                found.append(await listed(session))
        except TimeoutError:
            missing[name] = "it does not answer in time"
        except StoreUnreachable as error:
            missing[name] = str(error)
    return found, missing


def act(work: Callable[[Session, Orchestrator], Awaitable[T]]) -> T:
    """Return what `work` makes of a session on this user's fleet and of an orchestrator that may write to runs."""

    async def in_session(settings: Settings) -> T:
        async with open_acting_session(settings) as (session, orchestrator):
            return await work(session, orchestrator)

    return on_fleet(in_session)
