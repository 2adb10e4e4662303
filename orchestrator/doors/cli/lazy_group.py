"""A group whose commands are imported when they are used: listing them costs what it takes to print their help lines.

After click's own pattern for lazily loaded subcommands. What the group knows are stand-ins with a name and a line;
`resolve_command` puts the real one in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from toolfleet.help_text import flowing
from toolfleet.unused import unused_left_out

PACKAGE: Final = "toolfleet.orchestrator.doors.cli"


class Listed(NamedTuple):
    """A command by its line in the list, which is the first of its own help; a test holds the two together."""

    help: str
    epilog: str = ""
    options: Mapping[str, Any] = {}
    """Of `Typer.command`."""


def load(name: str, listed: Listed) -> Any:
    """Import the command of this name: the Typer `app` of the module of this name, or its function called like it."""
    with unused_left_out():
        module = import_module(f"{PACKAGE}.{name}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name, epilog=listed.epilog, **listed.options)(getattr(module, name))
    command = typer.main.get_command(app)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = flowing(each.help)
    return command


def group_of(commands: Mapping[str, Listed]) -> type[TyperGroup]:
    """Make a group of these commands, in this order, for `Typer(cls=…)`."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            stand_ins = {name: TyperCommand(name, help=listed.help) for name, listed in commands.items()}
            super().__init__(**attributes | {"commands": stand_ins})

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, stand_in, rest = super().resolve_command(ctx, args)
            return name, stand_in and load(str(name), commands[str(name)]), rest

    return LazyGroup
