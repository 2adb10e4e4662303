"""The MCP server of a fleet: what it offers, who hears that this has changed, and how its parts are put together.

Speaks through the official SDK's low-level server, both eras of the protocol; knows no transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.connection import Connection
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import CallerOf, anybody
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors
from toolfleet.orchestrator.doors.mcp.tasks import Context, Tasks, knows_tasks
from toolfleet.orchestrator.doors.mcp.tickets import Tickets
from toolfleet.orchestrator.doors.mcp.tool_calls import STATUS_TOOLS, ToolCaller
from toolfleet.orchestrator.doors.mcp.tool_listing import offered_tool
from toolfleet.read_result import READ_RESULT
from toolfleet.supervision import Errands

log = FactLog("toolfleet.mcp")

LOOK_EVERY_S: Final = 1.0
"""How often the catalog is compared with what clients were told."""

DRAIN_S: Final = 5.0
"""How long the end of the server waits for cancellations above all, which outlive their requests for a moment."""

TELL_WITHIN_S: Final = 5.0
"""A client that does not read for this long misses that the list has changed; it will not hold up the others."""

INSTRUCTIONS: Final = (
    "Tools of a Toolfleet. Calls run on workers, many at a time. A call that takes longer than you can wait is "
    "answered with a task_id and goes on by itself: never repeat it, ask for its result."
)


class FleetServer(Server[None]):
    """The low-level server, with one thing set for all its transports: that its list of tools changes."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the base class's options, which now tell clients of the handshake era that tools change."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def fleet_server(orchestrator: Orchestrator, caller_of: CallerOf = anybody) -> FleetServer:
    """Make an MCP server for the fleet of an open orchestrator. There may be any number of them."""
    errands = Errands("mcp_errand")
    tickets = Tickets(orchestrator.settings)
    performer = ToolCaller(orchestrator, tickets, errands)
    announcer = _Announcer(orchestrator)

    async def list_tools(ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        caller = caller_of(ctx.request)
        with protocol_errors():
            offered = await orchestrator.catalog.offered()
        specs = [spec for name, spec in sorted(offered.items()) if caller.may_call(name)]
        with_tasks = knows_tasks(ctx)
        own = (READ_RESULT,) if with_tasks else (*STATUS_TOOLS.values(), READ_RESULT)
        tools = [offered_tool(spec, knows_tasks=with_tasks) for spec in (*specs, *own)]
        # What is listed depends on who asks, and workers come and go.
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        with protocol_errors():
            # A task's dict passes as it is; the SDK's type knows no extension.
            return await performer.call(ctx, params, caller_of(ctx.request))  # type: ignore[return-value]  # a task's record, which the SDK's type leaves out

    @asynccontextmanager
    async def living(_server: Server[None]) -> AsyncIterator[None]:
        watching = orchestrator.supervisor.keep("mcp_tool_changes", announcer.watch)
        try:
            yield
        finally:
            await watching.aclose()
            await errands.aclose(within_s=DRAIN_S)

    server = FleetServer(
        "toolfleet",
        version=version("toolfleet"),
        instructions=INSTRUCTIONS,
        lifespan=living,
        # No parameter of ours travels in a header, so the catalog need not be read before each call.
        get_tool_input_schema=lambda _name: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=announcer.listen,
    )
    server.add_notification_handler("notifications/initialized", types.NotificationParams, announcer.meet)
    Tasks(orchestrator, tickets, caller_of, errands).serve_on(server)
    return server


class _Announcer:
    """Tells clients when tools have come or gone: by subscription, or on their connection in the handshake era."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._bus = InMemorySubscriptionBus()
        self._connections: set[Connection] = set()
        self.listen = ListenHandler(self._bus)

    async def meet(self, ctx: Context, _params: types.NotificationParams) -> None:
        """Take note of a client of the handshake era; it hears of changes until its connection closes."""
        # The SDK hands out no public way to a connection that outlives the request.
        connection = ctx.session._connection
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def watch(self) -> None:
        """Compare the catalog with what was told, until cancelled."""
        told = None
        while True:
            try:
                offered = await self._orchestrator.catalog.offered()
            except StoreUnreachable as error:
                log.warning("catalog_unreadable", error=str(error))
            else:
                if told is not None and offered != told:
                    await self._tell()
                told = offered
            await asyncio.sleep(LOOK_EVERY_S)

    async def _tell(self) -> None:
        await self._bus.publish(ToolsListChanged())
        await asyncio.gather(*(self._tell_one(connection) for connection in list(self._connections)))

    async def _tell_one(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(TELL_WITHIN_S):
                await connection.send_tool_list_changed()
        except TimeoutError:
            log.warning("mcp_client_does_not_read", session_id=connection.session_id)
