"""Lua scripts, which are files: in a folder `lua` beside the Python that runs them.

Each opens with what it does, its KEYS, its ARGV and its reply, and gives the arguments names before it uses them.
"""

from __future__ import annotations

from importlib.resources import files


def lua(package: str, *names: str, before: str = "", **constants: str | int) -> str:
    """The scripts of a package with these names, as one text: behind `before`, and behind constants as locals.

    A constant is what never differs between the processes of a release. All else is an argument of the script: the
    server keeps each text that it has run.
    """
    folder = files(package).joinpath("lua")
    parts = [before] if before else []
    # Numbers as texts, too: as such they go to commands, and the server need not turn them into one each time.
    parts += [f"local {name} = '{value}'" for name, value in constants.items()]
    parts += [folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names]
    return "\n".join(parts)


def when_called(name: str, script: str, *gives: str) -> str:
    """Return a script as a Lua function of this name, which returns these of its locals, or what the script does.

    A script makes all its functions anew each time it runs. Where there are many, that takes longer than what most runs
    need them for; as a function they are only made where it is called.
    """
    end = f"return {', '.join(gives)}\n" if gives else ""
    return f"local function {name}()\n{script}\n{end}end"
