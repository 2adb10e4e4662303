"""`toolfleet mcp`: the fleet's tools for MCP hosts, over standard input and output or over HTTP.

Opens the transport and closes it; what is said there is the server's.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolfleet.errors import ExtraMissing, PortInUse
from toolfleet.event_loop import run_service
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import LocalFleet, redis_or_embedded
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.settings import Settings

if TYPE_CHECKING:
    from toolfleet.orchestrator.doors.mcp import McpApp

HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8765

FOR_A_HOST: Final = (
    "Waits for an MCP host on standard input: hosts start this command themselves. With --http it serves a URL."
)


def mcp(
    *,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", help="A module with tools: workers for it are started, and stopped afterwards."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve Streamable HTTP on this machine instead.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where, with --http; 0 for any free port.")] = (
        DEFAULT_PORT
    ),
) -> None:
    """Serve the fleet's tools to an MCP host, over standard input and output unless --http is given.

    With --tools a fleet is started for this one server. Without, the fleet that
    runs already is used: that of `toolfleet up`, or the one at
    TOOLFLEET_REDIS_URL. Ends when the host closes its end, or with Ctrl-C.
    """
    if find_spec("mcp") is None:
        raise ExtraMissing("the MCP server needs `pip install 'toolfleet[mcp]'`")
    with ExitStack() as stack:
        door = stack.enter_context(_listening(port)) if http else None
        settings = (
            stack.enter_context(LocalFleet(tools)).settings if tools else stack.enter_context(redis_or_embedded())
        )
        run_service(_serve(settings, door))


async def _serve(settings: Settings, door: socket.socket | None) -> None:
    # What MCP needs is an extra: loaded only by those who open this door.
    from toolfleet.orchestrator.doors.mcp import mcp_app, serve_stdio  # noqa: PLC0415  # an extra

    async with Orchestrator(settings=settings) as orchestrator:
        collect_rarely()
        if door is None:
            if sys.stdin.isatty():  # no host speaks through a terminal
                typer.echo(f"{FOR_A_HOST} Ctrl-C stops it.", err=True)
            await serve_stdio(orchestrator)
        else:
            await _serve_http(mcp_app(orchestrator), door)


async def _serve_http(app: McpApp, door: socket.socket) -> None:
    from sse_starlette.sse import AppStatus  # noqa: PLC0415  # comes with the SDK

    from toolfleet.orchestrator.doors.http.listening import server_for  # noqa: PLC0415  # an extra

    # It would end all streams at the signal, those of calls too, whose clients wait for the results.
    AppStatus.enable_automatic_graceful_drain = False
    server = server_for(app.alone())
    server.says_that_it_stops = True
    typer.echo(f"MCP:  http://{HOST}:{door.getsockname()[1]}/mcp\n\nReady. Ctrl-C stops it.")
    await server.serve(sockets=[door])


def _listening(port: int) -> socket.socket:
    """Return a socket that listens before anything else is started. Raises PortInUse."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((HOST, port))
    except OSError as error:
        door.close()
        raise PortInUse(f"nothing can listen on {HOST}:{port} ({error.strerror}); choose another --port") from None
    return door
