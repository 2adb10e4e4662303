"""The transports: an ASGI application for Streamable HTTP, and standard input and output.

Opens and closes what the server needs to live; decides nothing about a request.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolfleet.misspelt import exact
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.beside import Beside
from toolfleet.orchestrator.doors.mcp.callers import CallerOf, anybody
from toolfleet.orchestrator.doors.mcp.server import fleet_server
from toolfleet.orchestrator.doors.mcp.standard_input import lines_of

LOOPBACK: Final = ("127.0.0.1:*", "localhost:*", "[::1]:*")
"""What a browser on this machine may call this server; anything else would be a web page that rebinds its name."""

PATH: Final = "/mcp"


class McpApp:
    """Streamable HTTP as an ASGI application, both eras of the protocol.

    Alive inside `async with app.living()`; where it is the whole application, the server's lifespan does that.
    """

    def __init__(
        self, orchestrator: Orchestrator, caller_of: CallerOf, hosts: Sequence[str] | None, beside: Beside | None
    ) -> None:
        self._server = fleet_server(orchestrator, caller_of, beside)
        self._sessions = StreamableHTTPSessionManager(
            self._server,
            security_settings=_security(hosts),
            max_request_body_size=orchestrator.settings.max_message_bytes,
        )

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Serve requests until the block ends. May be entered once."""
        async with self._sessions.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        await self._sessions.handle_request(scope, receive, send)

    def close_streams(self) -> None:
        """End the streams on which clients hear of changes, as before a server stops; requests are answered.

        Clients open them again, perhaps elsewhere.
        """
        self._server.close_streams()
        for transport in list(self._sessions._server_instances.values()):  # as below
            transport.close_standalone_sse_stream()

    @property
    def session_ids(self) -> Collection[str]:
        """The sessions that are open now."""
        # The SDK tells of them in no other way.
        return self._sessions._server_instances.keys()

    def opens_session(self, scope: Scope) -> bool:
        """Return whether this request asks for a session: revisions before sessions were given up begin with one."""
        headers = Headers(scope=scope)
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        is_of_sessions = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        return scope["method"] == "POST" and is_of_sessions and MCP_SESSION_ID_HEADER not in headers

    def alone(self) -> Starlette:
        """Return an application that serves nothing else, at /mcp."""
        return _Alone(self)


class _Alone(Starlette):
    """Serves one MCP server, and nothing else."""

    def __init__(self, app: McpApp) -> None:
        super().__init__(routes=[Route(PATH, endpoint=app)], lifespan=lambda _app: app.living())
        self.close_streams = app.close_streams


@exact()
def mcp_app(
    orchestrator: Orchestrator,
    *,
    caller_of: CallerOf = anybody,
    hosts: Sequence[str] | None = LOOPBACK,
    beside: MCPServer[Any] | None = None,
) -> McpApp:
    """Make the MCP server of an open orchestrator, for your own ASGI application.

    Mount it with `Route("/mcp", endpoint=app)` and keep `app.living()` open in the lifespan. `caller_of` says who sent
    a request; `hosts` are the Host headers that are accepted, None for all where something else protects the door.
    The prompts and resources of `beside` are offered to all callers; without it, those of TOOLFLEET_MCP_BESIDE.
    """
    return McpApp(orchestrator, caller_of, hosts, None if beside is None else Beside(beside))


async def serve_stdio(orchestrator: Orchestrator) -> None:
    """Serve the process at the other end of standard input and output until it closes them."""
    server = fleet_server(orchestrator)
    # All that the SDK does with its input is to take lines from it.
    lines = cast("anyio.AsyncFile[str]", lines_of(sys.stdin.fileno()))
    async with stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _security(hosts: Sequence[str] | None) -> TransportSecuritySettings:
    if hosts is None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return TransportSecuritySettings(
        allowed_hosts=list(hosts),
        allowed_origins=[f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")],
    )
