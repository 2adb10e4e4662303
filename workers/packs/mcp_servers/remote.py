"""One MCP server as its tools see it: asked for what it has, and asked to do it.

Whoever calls is told of every error in words for a model. A call during which the server was lost is repeated once, if
that does no harm.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import httpx2
from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT, Tool as RemoteTool
from pydantic import ValidationError

from toolfleet import Context, ToolError
from toolfleet.logs import FactLog
from toolfleet.workers.packs.mcp_servers.configuration import McpSettings, Server
from toolfleet.workers.packs.mcp_servers.connection import MAX_TOOLS, Connection, reason_of
from toolfleet.workers.packs.mcp_servers.following import Follower
from toolfleet.workers.packs.mcp_servers.given import Given, given_by, read_of
from toolfleet.workers.packs.mcp_servers.resources import Place, Resources, has_any

log = FactLog("toolfleet.packs.mcp")

T = TypeVar("T")


class Listed(NamedTuple):
    """What a server has."""

    tools: list[RemoteTool]
    has_resources: bool


class Lost(Exception):  # no error of anybody's: decided above, by the tool's effect
    """The connection ended before the answer came. `unheard`: the server has not even taken the request."""

    def __init__(self, reason: str, *, unheard: bool = False) -> None:
        super().__init__(reason)
        self.unheard = unheard


LOST: Final = frozenset({CONNECTION_CLOSED})

UNHEARD: Final = (INVALID_REQUEST, "Session terminated")
"""What the SDK says when a server over HTTP, which was started again, does not know the session."""


class Remote:
    """One server: a connection for each event loop of this process."""

    def __init__(self, name: str, server: Server, settings: McpSettings) -> None:
        self._name = name
        self._server = server
        self._connect_timeout_s = settings.connect_timeout_s
        self._call_timeout_s = server.timeout_s or settings.call_timeout_s
        self._look_again_s = settings.look_again_s
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Connection, Resources]] = (
            WeakKeyDictionary()
        )

    async def listed(self) -> Listed:
        """All that the server has now, by a connection for that alone. Raises ToolError."""
        connection, _ = self._connected()
        try:
            return await self._look(await connection.client())
        finally:
            await connection.close()

    async def follow(self, tell: Callable[[Listed], Awaitable[None]]) -> None:
        """Tell what the server has whenever that has changed. Lasts until it is cancelled."""
        connection, _ = self._connected()
        last: Listed | None = None

        async def look() -> Client:
            nonlocal last
            client = await connection.client()
            try:
                found = await self._look(client)
            except Lost as lost:
                connection.lost(client)
                raise ToolError(f"the MCP server {self._name} was lost: {lost}") from None
            if found != last:
                await tell(found)
            last = found
            return client

        await Follower(self._name, connection, look, self._look_again_s).follow()

    async def _look(self, client: Client) -> Listed:
        async def looked() -> Listed:
            tools: list[RemoteTool] = []
            cursor: str | None = None
            while True:
                page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                tools += page.tools
                cursor = page.next_cursor
                if not cursor or len(tools) >= MAX_TOOLS:
                    break
            has_resources = self._server.resources is not False and await has_any(client)
            return Listed(tools[:MAX_TOOLS], has_resources)

        return await self._answered("the list of its tools", looked(), self._connect_timeout_s)

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, name: str, arguments: dict[str, Any], ctx: Context, *, repeatable: bool) -> Given:
        """Call a tool of the server; what it gave, for a model. Raises ToolError."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            ctx.progress(progress / total if total else 0.0, message or "")

        async def ask(client: Client) -> Given:
            asked = client.call_tool(
                name, arguments, read_timeout_seconds=self._call_timeout_s, progress_callback=on_progress
            )
            return given_by(await self._answered(name, asked))

        return await self._with_client(ask, ctx, repeatable=repeatable)

    async def page(self, arguments: dict[str, Any], ctx: Context) -> Given:
        """List what can be read, page by page, as JSON. Raises ToolError."""
        _, resources = self._connected()
        at = Place.of(arguments.get("page") or "")

        async def ask(client: Client) -> Given:
            page = await self._answered("the list of its resources", resources.page(client, at))
            return json.dumps(page, ensure_ascii=False)

        return await self._with_client(ask, ctx, repeatable=True)

    async def read(self, arguments: dict[str, Any], ctx: Context) -> Given:
        """Read a resource that the server names. Raises ToolError."""
        _, resources = self._connected()
        uri: str = arguments["uri"]

        async def look(client: Client) -> Any:
            return await self._answered("the list of its resources", resources.look(client), self._connect_timeout_s)

        async def ask(client: Client) -> Given:
            await resources.must_be_named(uri, lambda: look(client))
            read = await self._answered(f"the resource {uri}", client.read_resource(uri, cache_mode="bypass"))
            return read_of(read.contents)

        return await self._with_client(ask, ctx, repeatable=True)

    async def _with_client(self, ask: Callable[[Client], Awaitable[T]], ctx: Context, *, repeatable: bool) -> T:
        connection, _ = self._connected()
        client = await connection.client()
        try:
            return await ask(client)
        except Lost as lost:
            connection.lost(client)
            if not repeatable and not lost.unheard:
                raise ToolError(
                    f"the MCP server {self._name} was lost during the call ({lost}): it may or may not have happened"
                ) from None
        log.warning("mcp_server_lost", server=self._name, call_id=ctx.call_id, run_id=ctx.run_id)
        client = await connection.client()
        try:
            return await ask(client)
        except Lost as lost:
            connection.lost(client)
            raise ToolError(f"the MCP server {self._name} was lost during the call, twice: {lost}") from None

    async def _answered(self, what: str, answer: Awaitable[T], within_s: float | None = None) -> T:
        """What the server answers. Raises ToolError, and Lost when the connection ended before."""
        limit_s = self._call_timeout_s if within_s is None else within_s
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            raise self._too_late(what, limit_s) from None
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise self._too_late(what, limit_s) from None
            if error.code in LOST or isinstance(error.__cause__, httpx2.TransportError):
                raise Lost(error.message) from None
            if (error.code, error.message) == UNHEARD:
                raise Lost(error.message, unheard=True) from None
            raise ToolError(f"the MCP server {self._name} refused {what}: {error.message}") from None
        except (httpx2.TransportError, OSError) as error:
            raise Lost(reason_of(error)) from None
        except ValidationError:
            raise ToolError(f"the MCP server {self._name} answered {what} with what is no result") from None

    def _too_late(self, what: str, limit_s: float) -> ToolError:
        return ToolError(f"{what} of the MCP server {self._name} gave no answer within {limit_s:g} s")

    def _connected(self) -> tuple[Connection, Resources]:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            connection = Connection(self._name, self._server, connect_timeout_s=self._connect_timeout_s)
            patterns = () if isinstance(self._server.resources, bool) else self._server.resources
            self._connections[loop] = connection, Resources(self._name, patterns, connection.news)
        return self._connections[loop]
