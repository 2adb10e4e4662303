"""An orchestrator's connection to its fleet: open or not, and nothing in between.

Its services are one value, built when it is entered and given up when it is left. Knows who this orchestrator is and
how much it has in hand, never what is asked of it.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from toolfleet.connections import address
from toolfleet.orchestrator.errors import NotOpen
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.limits import FleetLimits
from toolfleet.orchestrator.fleet.queues import Queues
from toolfleet.orchestrator.fleet.versions import FleetVersions
from toolfleet.orchestrator.schedules.schedules import Schedules
from toolfleet.orchestrator.store.conversations import Conversations
from toolfleet.orchestrator.wiring import Config, Services, find_redis, open_services
from toolfleet.settings import Settings
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal


class FleetConnection:
    """What an orchestrator is while it is connected to a fleet. It may be entered again after it was left."""

    def __init__(self, asked: Settings, config: Config) -> None:
        self._asked = self._settings = asked
        self._config = config
        self._id = _new_id()
        self._seal = Seal(asked)
        self._exit = AsyncExitStack()
        self._opened: Services | None = None

    async def __aenter__(self) -> Self:
        """Connect, and take over runs that others have left."""
        # Anew each time: one that was made before a fork would share its reply stream with its siblings.
        self._id = _new_id()
        async with AsyncExitStack() as stack:
            self._settings = await find_redis(stack, self._asked)
            self._opened = await open_services(stack, self._settings, self._seal, self._id, self._config)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Hand over what is going on, and disconnect. Whoever awaits such a run here gets OrchestratorClosed."""
        try:
            await self._exit.aclose()
        finally:
            # Not before: what is handed over may still ask, an interceptor that makes a call of its own for example.
            self._opened = None

    @property
    def _services(self) -> Services:
        if self._opened is None:
            raise NotOpen(
                "this Orchestrator is not open: use it inside `async with Orchestrator(…) as orchestrator:`; without "
                "an event loop, use `run_sync` or `toolfleet.sync.do`, which open it"
            )
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether it has been entered and not been left."""
        return self._opened is not None

    @property
    def settings(self) -> Settings:
        """The settings of its fleet. Once it has been entered they name the Redis that was found."""
        return self._settings

    @property
    def address(self) -> str:
        """Where the Redis of its fleet is, without password; certain only once it has been entered."""
        return address(self._settings.redis_url)

    @property
    def orchestrator_id(self) -> str:
        """Its name in Redis: host, process, and a random part, which is a new one each time it is entered."""
        return self._id

    @property
    def catalog(self) -> Catalog:
        """The tools of its fleet. Raises NotOpen."""
        return self._services.catalog

    @property
    def limits(self) -> FleetLimits:
        """What its tools may not exceed, and what people say of that while it runs. Raises NotOpen."""
        return self._services.limits

    @property
    def versions(self) -> FleetVersions:
        """The versions of its tools, and which share of new runs gets which. Raises NotOpen."""
        return self._services.versions

    @property
    def queues(self) -> Queues:
        """How the queues of its fleet stand. Raises NotOpen."""
        return self._services.queues

    @property
    def schedules(self) -> Schedules:
        """Runs that begin by the clock: made, looked at, paused, removed. Raises NotOpen."""
        return self._services.schedules

    @property
    def conversations(self) -> Conversations:
        """Which run of a conversation was its last. Raises NotOpen."""
        return self._services.conversations

    @property
    def ailing(self) -> Mapping[str, str]:
        """Which of the listeners that it lives by are down now, and why; empty while it is well. Raises NotOpen.

        What is down begins again by itself. Meanwhile calls and runs may take longer, and nothing of them is lost.
        """
        return self._services.supervisor.ailing

    @property
    def supervisor(self) -> Supervisor:
        """What keeps up its listeners, and those of a door before it. Raises NotOpen."""
        return self._services.supervisor

    @property
    def dispatched(self) -> int:
        """How many calls it has put into the queues since it was entered. Raises NotOpen."""
        return self._services.dispatcher.dispatched

    @property
    def adopted(self) -> int:
        """How many runs of others it has taken over since it was entered. Raises NotOpen."""
        return self._services.runs.adopted_so_far

    @property
    def working(self) -> int:
        """How many runs it works on now. Those that rest cost nothing and do not count. Raises NotOpen."""
        return self._services.runs.working


def _new_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
