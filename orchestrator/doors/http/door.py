"""What every route of one API process shares: the orchestrator behind it, and what the door itself keeps in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

import redis.asyncio
from fastapi import Request

from toolfleet.local.local_key import LocalKey
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.http.following import Followings
from toolfleet.orchestrator.doors.http.key_store import Grant, Keyring
from toolfleet.orchestrator.doors.http.live_replies import LiveReplies
from toolfleet.orchestrator.doors.http.looking import Looking
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.quotas import Quotas
from toolfleet.orchestrator.doors.http.shared_reads import SharedReads
from toolfleet.orchestrator.doors.http.tail import Tail
from toolfleet.orchestrator.doors.http.usage import Usage
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.store.run_store import not_stored
from toolfleet.orchestrator.webhooks.pushes import Pushes
from toolfleet.settings import Settings
from toolfleet.wire import Seal

MAX_READING: Final = 16
"""Runs of which it is looked at once whose they are."""


@dataclass(slots=True)
class Door:
    """What the routes of one API process share: its orchestrator, its connection, its keys and its listeners."""

    orchestrator: Orchestrator
    client: redis.asyncio.Redis
    settings: Settings
    seal: Seal
    options: ApiOptions
    keyring: Keyring
    tail: Tail
    local_key: LocalKey
    quotas: Quotas
    usage: Usage
    followings: Followings
    looking: Looking
    model: str = ""
    """The name of the orchestrator's model; empty without one."""
    streams: set[asyncio.Task[None]] = field(default_factory=set)
    """What is being streamed to clients now."""
    stream_closers: list[Callable[[], None]] = field(default_factory=list)
    """What ends the streams of doors that have their own."""
    live: LiveReplies = field(default_factory=LiveReplies)
    pushes: Pushes = field(init=False)
    session_seal: Seal = field(init=False)
    """What sessions of the page are sealed with: the first shard's, so that one is good for runs on all of them."""
    is_closing: bool = False
    _tenants: SharedReads[str, str] = field(init=False)

    def __post_init__(self) -> None:
        # It is read from the run's first entry, which may be megabytes.
        self._tenants = SharedReads(self.orchestrator.tenant_of, max_at_once=MAX_READING)
        self.pushes = Pushes(self.client, self.settings, self.seal)
        shards = self.settings.all_shards
        self.session_seal = Seal(self.settings.of_shard(shards.first)) if shards else self.seal

    def close_streams(self) -> None:
        """End every stream: a server that stops would wait for its listeners, who wait for it."""
        self.is_closing = True
        for stream in self.streams:
            stream.cancel()
        for close in self.stream_closers:
            close()

    async def must_see(self, run_id: str, grant: Grant) -> None:
        """Raise RunNotFound for a run of another tenant, as for one that is not there."""
        must_be_theirs(run_id, await self._tenants.read(run_id), grant)


def must_be_theirs(run_id: str, tenant: str, grant: Grant) -> None:
    """Raise RunNotFound for a run of this tenant, unless that is whose grant it is: as for one that is not there."""
    if tenant != grant.tenant:
        raise RunNotFound(not_stored(run_id))


async def door_of(request: Request) -> Door:
    """Return the door that a request came through. For FastAPI's dependencies."""
    return cast("Door", request.app.state.door)
