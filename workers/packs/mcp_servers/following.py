"""Follows what one server has, on one event loop: looks when it says that a list has changed, or was lost, or at times.

However often a server tells of changes, it is looked at once a second at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import METHOD_NOT_FOUND

from toolfleet import ToolError
from toolfleet.logs import FactLog
from toolfleet.supervision import run_errand
from toolfleet.workers.packs.mcp_servers.connection import Connection

log = FactLog("toolfleet.packs.mcp")

PAUSE_S: Final = 1.0
"""Between two looks; longer after one that took longer."""

LAST_PAUSE_S: Final = 5.0
"""Before a server is tried again that cannot be reached, or is lost again and again."""

GONE: Final = (httpx2.TransportError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError)


class Follower:
    """Follows one server."""

    def __init__(
        self, name: str, connection: Connection, look: Callable[[], Awaitable[Client]], every_s: float
    ) -> None:
        """`look` looks at the server, tells what it has, and returns by which client. It raises ToolError."""
        self._name = name
        self._connection = connection
        self._look = look
        self._every_s = every_s
        self._client: Client | None = None
        self._listening: asyncio.Task[None] | None = None
        self._said = ""

    async def follow(self) -> None:
        """Look, again and again. Lasts until it is cancelled."""
        pause_s = PAUSE_S
        try:
            while True:
                began_s = time.monotonic()
                is_steady = await self._looked()
                pause_s = PAUSE_S if is_steady else min(2 * pause_s, LAST_PAUSE_S)
                await asyncio.sleep(max(pause_s, time.monotonic() - began_s))
                await self._connection.news.wait(self._every_s if is_steady else 0)
        finally:
            self._listen_to(None)

    async def _looked(self) -> bool:
        """Look once. Returns whether it was the server that was there before."""
        before = self._client
        try:
            client = await self._look()
        except ToolError as error:
            if str(error) != self._said:
                log.warning("mcp_server_not_followed", server=self._name, reason=str(error)[:500])
            self._said = str(error)
            return False
        self._said = ""
        if client is not before:
            self._listen_to(client)
        return before is None or client is before

    def _listen_to(self, client: Client | None) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._client = client
        self._listening = None if client is None else run_errand(f"mcp {self._name} changes", self._listen(client))

    async def _listen(self, client: Client) -> None:
        """Have the server tell of changes. Servers of earlier versions of the protocol do it unasked."""
        capabilities = client.server_capabilities
        if not any(each and each.list_changed for each in (capabilities.tools, capabilities.resources)):
            return
        pause_s = PAUSE_S
        while client is self._client:
            began_s = time.monotonic()
            try:
                await self._heard(client)
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    return
            except (SubscriptionLost, TimeoutError, *GONE):
                pass  # it is asked again below
            except RuntimeError:
                return  # the SDK's word for a session that has ended: the next one is listened to anew
            self._connection.news.note()  # nobody told what has changed since
            lasted = time.monotonic() - began_s > LAST_PAUSE_S
            pause_s = PAUSE_S if lasted else min(2 * pause_s, LAST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _heard(self, client: Client) -> None:
        listening: Any = client.listen(tools_list_changed=True, resources_list_changed=True)
        async with listening as changes:
            self._connection.news.note()  # what has changed before it listened, it does not tell
            async for _ in changes:
                pass  # noted by the connection, as they come
