"""Lua scripts, which are files.

Those of the published contract stand in `wire/v1/scripts/`, where programs in other languages read them too; of what
each is made says `wire/v1/scripts.json`. All others stand in a folder `lua` beside the Python that runs them. Each
opens with what it does, its KEYS, its ARGV and its reply, and gives the arguments names before it uses them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

CONTRACT: Final = files("toolfleet").joinpath("wire_v1")
"""What is published of how calls travel; see docs/wire.md."""


def lua(package: str, *names: str, before: str = "") -> str:
    """The scripts of a package with these names, as one text, behind `before`."""
    folder = files(package).joinpath("lua")
    parts = [before] if before else []
    parts += [folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names]
    return "\n".join(parts)


def wire_script(name: str, *, clock: str | None = None) -> str:
    """A script of the contract as the one text that servers run. A test gives it a `clock` of its own."""
    return _text(manifest()["scripts"][name]["made_of"], clock)


def wire_library(name: str, *, clock: str | None = None) -> str:
    """What several scripts of the contract begin with, and some of ours beside it."""
    return _text([{"library": name}], clock)


@cache
def manifest() -> Any:
    """Return `scripts.json`."""
    return json.loads(CONTRACT.joinpath("scripts.json").read_text("utf-8"))


def _text(steps: list[Any], clock: str | None) -> str:
    return "\n".join(_step(step, clock) for step in steps)


def _step(step: str | dict[str, Any], clock: str | None) -> str:
    """Return a file's text, constants as locals, a library, or a function of all three."""
    if isinstance(step, str):
        return _file(step)
    if "constants" in step:
        # Numbers as texts, too: as such they go to commands, and the server need not turn them into one each time.
        values = manifest()["constants"]
        return "\n".join(f"local {name} = '{values[name]}'" for name in step["constants"])
    if "library" in step:
        is_replaced = clock is not None and step["library"] == "clock"
        return str(clock) if is_replaced else _text(manifest()["libraries"][step["library"]], clock)
    return _when_called(step["function"], _text(step["of"], clock), step["gives"])


@cache
def _file(name: str) -> str:
    return CONTRACT.joinpath("scripts", *name.split("/")).read_text("utf-8")


def _when_called(name: str, script: str, gives: list[str]) -> str:
    """Return a script as a Lua function of this name, which returns these of its locals, or what the script does.

    A script makes all its functions anew each time it runs. Where there are many, that takes longer than what most runs
    need them for; as a function they are only made where it is called.
    """
    end = f"return {', '.join(gives)}\n" if gives else ""
    return f"local function {name}()\n{script}\n{end}end"
