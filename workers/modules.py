"""Imports the tool modules that a worker is told to serve, and says where one of them breaks."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from toolfleet import toolbox
from toolfleet.catalog import BUILT_IN_NAMES, command
from toolfleet.errors import DuplicateTool, ToolModuleError
from toolfleet.tool import Tool
from toolfleet.toolbox import load_tools

_LOADERS: Final = frozenset({toolbox.__file__, importlib.__file__})
_OURS: Final = Path(toolbox.__file__).parent


def tools_of(names: Sequence[str]) -> dict[str, Tool[..., Any]]:
    """Return the tools of these modules, which may lie in the current folder, as with `celery --app`.

    Raises ToolModuleError with the file and line that broke, NoToolsFound, DuplicateTool.
    """
    if not names:
        raise ToolModuleError("no tool module: name one, for example --import toolfleet.workers.packs.arithmetic")
    sys.path.insert(0, str(Path.cwd()))
    try:
        tools = load_tools(names)
    except ToolModuleError as error:
        raise ToolModuleError(f"{error} ({_place(error.__cause__)})") from error
    for name in sorted(tools.keys() & BUILT_IN_NAMES):
        raise DuplicateTool(
            f"{name} means two things, {tools[name].source} and a built-in tool of every orchestrator: rename yours "
            "with @tool(name=...)"
        )
    return tools


def not_served(tools: Iterable[Tool[..., Any]], queues: Collection[str], modules: Sequence[str]) -> list[str]:
    """Return a line for each queue of these tools that is not among `queues`, with the command that would serve it."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for tool in tools:
        if tool.spec.queue not in queues:
            others[tool.spec.queue].append(tool.spec.name)
    return [
        f"not served by this worker: {', '.join(sorted(names))} (queue {queue}); {command(queue, modules)} serves "
        f"{'it' if len(names) == 1 else 'them'}"
        for queue, names in sorted(others.items())
    ]


def _place(error: BaseException | None) -> str:
    """Return the file and line that raised; for a module that is not there, where it was looked for."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    read = [frame for frame in frames if frame.filename not in _LOADERS and not frame.filename.startswith("<frozen")]
    # A tool that is declared wrongly is found out by us, deeper than the line that somebody has to change.
    theirs = [frame for frame in read if not Path(frame.filename).is_relative_to(_OURS)]
    if place := (theirs or read)[-1:]:
        return f"{place[0].filename}:{place[0].lineno}"
    return f"looked in {Path.cwd()} and among the installed packages: check the name and the folder"
