"""`toolfleet environment`: serves an environment of Anthropic's Managed Agents until it is told to stop.

Opens the parts and closes them; what is claimed, called and posted is the door's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import orjson
import typer
from rich.console import Console

from toolfleet.errors import InvalidSettings
from toolfleet.event_loop import run_service
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.on_fleet import on_fleet
from toolfleet.orchestrator.doors.cli.orchestrator import listen_for_stop
from toolfleet.orchestrator.doors.hosted import Environment, Performer, RelayModel, Wire, definitions
from toolfleet.orchestrator.doors.hosted.wire import wire_of
from toolfleet.settings import Settings
from toolfleet.terminal import harmless

KEY: Final = "ANTHROPIC_ENVIRONMENT_KEY"
SESSIONS: Final = 16


def environment(
    *,
    environment_id: Annotated[
        str | None, typer.Argument(metavar="ENV_ID", help="The environment's id; ANTHROPIC_ENVIRONMENT_ID otherwise.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", help="Only this tool, and others so named; uses of all others are left to whoever has them."
        ),
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, max=1000, help="How many sessions are served at a time.")] = SESSIONS,
    tenant: Annotated[str, typer.Option(help="Whose calls they are.")] = "",
    grace_s: Annotated[
        float, typer.Option("--grace-s", min=0, help="How long calls may take to end once it is told to stop.")
    ] = 30.0,
    idle_s: Annotated[
        float, typer.Option("--idle-s", min=0, help="How long a session is kept whose turn has ended.")
    ] = 60.0,
    tools: Annotated[
        bool, typer.Option("--tools", help="Only print the fleet's tools, as JSON to declare on the agent.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Serve a self-hosted environment of Anthropic's Managed Agents with the fleet's tools until Ctrl-C.

    Claims the environment's sessions and makes each custom tool use one call
    of the fleet. Any number may serve one environment, on any machine. The key
    is read from ANTHROPIC_ENVIRONMENT_KEY, and ANTHROPIC_BASE_URL says where
    the API is, if it is another one.
    """
    named = tool or []
    if tools:
        typer.echo(on_fleet(lambda settings: _definitions(settings, named)))
        return
    environment_id = environment_id or os.environ.get("ANTHROPIC_ENVIRONMENT_ID")
    if not environment_id:
        raise typer.BadParameter("which environment? Name it, or set ANTHROPIC_ENVIRONMENT_ID")
    key = os.environ.get(KEY)
    if not key:
        raise InvalidSettings(f"{KEY} is not set: the key of the environment, which its page at the vendor's makes")
    wire = wire_of(environment_id, key)
    console = Console(quiet=quiet, soft_wrap=True, highlight=False)
    with redis_or_embedded() as settings:

        async def serve() -> None:
            await _serve(settings, console, wire, Terms(named, tenant, sessions, grace_s, idle_s))

        run_service(serve())


@dataclass(frozen=True, slots=True)
class Terms:
    """How an environment is to be served."""

    tools: Sequence[str]
    tenant: str
    sessions: int
    grace_s: float
    idle_s: float


async def _serve(settings: Settings, console: Console, wire: Wire, terms: Terms) -> None:
    stop = listen_for_stop()

    def tell(words: str) -> None:
        console.print(harmless(words), markup=False)

    try:
        async with Orchestrator(RelayModel(), settings=settings) as orchestrator:
            collect_rarely()
            performer = Performer(orchestrator, wire.environment_id, tools=terms.tools, tenant=terms.tenant)
            tell(f"environment:   {wire.environment_id}")
            tell("Ready. Ctrl-C lets calls end, gives the sessions back and stops.")
            served = Environment(
                wire, performer, sessions=terms.sessions, grace_s=terms.grace_s, idle_s=terms.idle_s, tell=tell
            )
            await served.serve(stop)
    finally:
        await wire.aclose()
    tell("Stopped; calls under way go on in the fleet.")


async def _definitions(settings: Settings, named: list[str]) -> str:
    async with Orchestrator(settings=settings, adopts=False) as orchestrator:
        served = await orchestrator.catalog.offered()
    return orjson.dumps(definitions(served, named), option=orjson.OPT_INDENT_2).decode()
