"""The API of one shard: an application of its own, which lives while its Redis could be reached."""

from __future__ import annotations

import asyncio
from typing import Self

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Scope

from toolfleet.orchestrator.doors.http.access import grant_by_key
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.idempotency import HEADER, name_of_record
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.fleet.catalog import Catalog


class ShardApi:
    """Answers the requests for one shard, once it is entered."""

    def __init__(self, name: str, app: FastAPI) -> None:
        self.name = name
        self.app = app
        self.is_open = False
        self._leaving = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    @property
    def door(self) -> Door:
        """What its routes share. Only while it is open."""
        door: Door = self.app.state.door
        return door

    @property
    def catalog(self) -> Catalog:
        """The workers of the shard."""
        return self.door.orchestrator.catalog

    async def __aenter__(self) -> Self:
        """Begin its lifespan. Raises what an Orchestrator raises."""
        self._leaving.clear()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # What is entered here must be left by the same task, which whoever leaves it is not.
        self._living = asyncio.create_task(self._live(begun))  # watched: awaited below, and when it is left
        try:
            await begun
        except BaseException:
            self._living.cancel()
            await asyncio.gather(self._living, return_exceptions=True)
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End its lifespan: its streams, then its orchestrator."""
        self._leaving.set()
        if self._living is not None:
            await self._living

    async def has_answered(self, scope: Scope) -> bool:
        """Whether it knows of an earlier request with this one's Idempotency-Key. Raises StoreUnreachable."""
        headers = Headers(scope=scope)
        try:
            grant = await grant_by_key(self.door, headers, scope.get("server"))
        except Problem:
            return False  # of whom it does not know, it has had none
        return bool(await self.door.client.exists(name_of_record(self.door, grant, headers[HEADER])))

    async def _live(self, begun: asyncio.Future[None]) -> None:
        try:
            async with self.app.router.lifespan_context(self.app):
                self.is_open = True
                begun.set_result(None)
                await self._leaving.wait()
                self.is_open = False
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)
        finally:
            self.is_open = False
