"""`toolfleet flower`: Celery's web monitor on this fleet, never without a password."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from toolfleet.errors import ExtraMissing
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.orchestrator.doors.cli.running_flower import door_at, flower_is_installed, running_flower

DEFAULT_PORT: Final = 5555

REMEDY: Final = "Celery's web monitor needs `pip install 'toolfleet[flower]'`"


def flower(
    *,
    address: Annotated[str, typer.Option(help="Where to listen; 127.0.0.1 is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = DEFAULT_PORT,
) -> None:
    """Run Flower until Ctrl-C. TOOLFLEET_FLOWER_AUTH=user:password sets its login; otherwise one is made up."""
    if not flower_is_installed():
        raise ExtraMissing(REMEDY)
    door = door_at(address, port, remedy="choose another --port")
    with redis_or_embedded() as settings, running_flower(door, settings) as running:
        running.wait_until_it_listens()
        typer.echo(f"Flower: {door}")
        running.wait()
