"""The MCP server of a fleet: what it offers, who hears that this has changed, and how its parts are put together.

Speaks through the official SDK's low-level server, both eras of the protocol; knows no transport.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from toolfleet.catalog import of_tenant
from toolfleet.connections import connect_async
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.approvals import Approvals
from toolfleet.orchestrator.doors.mcp.beside import Beside
from toolfleet.orchestrator.doors.mcp.callers import CallerOf, anybody
from toolfleet.orchestrator.doors.mcp.completion import Completions
from toolfleet.orchestrator.doors.mcp.listening import Listening
from toolfleet.orchestrator.doors.mcp.log_messages import serve_log_levels
from toolfleet.orchestrator.doors.mcp.prompts import Prompts
from toolfleet.orchestrator.doors.mcp.resources import Resources
from toolfleet.orchestrator.doors.mcp.rounds import sealed_states
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors
from toolfleet.orchestrator.doors.mcp.running_questions import RunningQuestions
from toolfleet.orchestrator.doors.mcp.status_tools import STATUS_TOOLS
from toolfleet.orchestrator.doors.mcp.task_news import TaskNews
from toolfleet.orchestrator.doors.mcp.tasks import Context, Tasks, knows_tasks
from toolfleet.orchestrator.doors.mcp.tickets import Tickets
from toolfleet.orchestrator.doors.mcp.tool_calls import ToolCaller
from toolfleet.orchestrator.doors.mcp.tool_listing import offered_tool
from toolfleet.read_result import READ_RESULT
from toolfleet.supervision import Errands

DRAIN_S: Final = 5.0
"""How long the end of the server waits for cancellations above all, which outlive their requests for a moment."""

INSTRUCTIONS: Final = (
    "Tools of a Toolfleet. Calls run on workers, many at a time. A call that takes longer than you can wait is "
    "answered with a task_id and goes on by itself: never repeat it, ask for its result."
)


class FleetServer(Server[None]):
    """The low-level server, with one thing set for all its transports: that its list of tools changes."""

    close_streams: Callable[[], None]
    """Ends what is sent to those that listen for changes."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the base class's options, which now tell clients of the handshake era that tools change."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def fleet_server(
    orchestrator: Orchestrator, caller_of: CallerOf = anybody, beside: Beside | None = None
) -> FleetServer:
    """Make an MCP server for the fleet of an open orchestrator. There may be any number of them.

    `beside` is what it offers besides; None for what the settings name. Raises ToolModuleError.
    """
    errands = Errands("mcp_errand")
    tickets = Tickets(orchestrator.settings)
    client = connect_async(orchestrator.settings)
    questions = RunningQuestions(orchestrator)
    performer = ToolCaller(orchestrator, tickets, errands, Approvals(client, orchestrator.settings.keys), questions)
    beside = Beside.named(orchestrator.settings.mcp_beside) if beside is None else beside
    tasks = Tasks(orchestrator, tickets, caller_of, errands, questions)
    resources = Resources(orchestrator, caller_of, beside)
    listening = Listening(orchestrator, caller_of, resources, TaskNews(tasks))

    async def list_tools(ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        caller = caller_of(ctx.request)
        with protocol_errors():
            offered = of_tenant(await orchestrator.catalog.offered(), caller.tenant)
        specs = [spec for name, spec in sorted(offered.items()) if caller.may_call(name)]
        with_tasks = knows_tasks(ctx)
        own = (READ_RESULT,) if with_tasks else (*STATUS_TOOLS.values(), READ_RESULT)
        tools = [offered_tool(spec, knows_tasks=with_tasks) for spec in (*specs, *own)]
        # What is listed depends on who asks, and workers come and go.
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def call_tool(
        ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        with protocol_errors():
            # A task's dict passes as it is; the SDK's type knows no extension.
            return await performer.call(ctx, params, caller_of(ctx.request))  # type: ignore[return-value]  # a task's record, which the SDK's type leaves out

    @asynccontextmanager
    async def living(_server: Server[None]) -> AsyncIterator[None]:
        watching = orchestrator.supervisor.keep("mcp_tool_changes", listening.watch_tools)
        try:
            yield
        finally:
            await watching.aclose()
            await errands.aclose(within_s=DRAIN_S)
            await client.aclose()

    server = FleetServer(
        "toolfleet",
        version=version("toolfleet"),
        instructions=INSTRUCTIONS,
        lifespan=living,
        # So that the catalog need not be read before each call.
        get_tool_input_schema=listening.headed_schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.close_streams = listening.close_streams
    for part in (tasks, resources, listening, Prompts(beside), Completions(orchestrator, caller_of, beside)):
        part.serve_on(server)
    serve_log_levels(server)
    server.middleware.append(sealed_states(orchestrator.settings, caller_of))
    return server
