"""Which tools this worker has at the moment: those that were declared, and those that come and go.

Everything that serves calls looks into the two dicts that are kept up here, by name and call by call. So a call under
way ends with the tool that it began with, and the next one meets what there is then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from toolfleet.catalog import BUILT_IN_NAMES, NAME_CHARS
from toolfleet.changing_tools import ChangingTools
from toolfleet.errors import InvalidTool
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.tool import Tool
from toolfleet.workers.celery.task import ToolTask, tool_task

log = FactLog("toolfleet.workers")

NAMES_TOLD: Final = 20
"""Of each kind of change in one line of the log."""

Made = Mapping[str, Tool[..., Any] | None]
"""Tools by name; None where what is written is no tool."""


class Change(NamedTuple):
    """What became of the tools of a worker, by name."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass
class LivingTools:
    """The tools of one process, with the Celery task of each. Changed on one thread, read on any."""

    tools: dict[str, Tool[..., Any]]
    tasks: dict[str, ToolTask] = field(default_factory=dict)
    sources: tuple[ChangingTools, ...] = ()
    news: dict[str, bytes] = field(default_factory=dict)
    """What child processes may not know that were forked before: for each tool that has changed, how it is now."""
    _written: dict[int, dict[str, str]] = field(default_factory=dict)
    _heard: dict[str, bytes] = field(default_factory=dict)
    """In a child process: the news that it has taken of each tool."""

    def __post_init__(self) -> None:
        self._written = {at: dict(source.at_start) for at, source in enumerate(self.sources)}

    def make(self, at: int, written: Mapping[str, str]) -> Made:
        """Return those of a source's tools that are written otherwise than before. Takes time: for a thread."""
        before = self._written[at]
        return {name: self._made(at, name, text) for name, text in written.items() if before.get(name) != text}

    def _made(self, at: int, name: str, text: str) -> Tool[..., Any] | None:
        try:
            return self.sources[at].made_of(text)
        except InvalidTool as error:
            log.warning("tool_left_out", tool=name[:100], reason=str(error)[:500])
            return None

    def take(self, at: int, written: Mapping[str, str], made: Made, register: Callable[[ToolTask], None]) -> Change:
        """Have a source's tools as they are now, with what was made of them before. Returns what that has changed."""
        before = self._written[at]
        mine = {name for name in before if name in self.tools}
        here = {name: tool for name, tool in made.items() if tool is not None and self._is_free(name, mine)}
        removed = [name for name in mine if name not in written or (name in made and made[name] is None)]
        added = [name for name in here if name not in mine]
        changed = [name for name in here if name in mine and here[name].spec != self.tools[name].spec]
        self._written[at] = {name: text for name, text in written.items() if name in mine or name in here}
        for name in [*added, *changed]:
            self._set(at, name, written[name], here[name], register)
        for name in removed:
            self.remove(name)
        return Change(tuple(added), tuple(changed), tuple(removed))

    def _is_free(self, name: str, mine: set[str]) -> bool:
        if name in mine:
            return True
        if name in BUILT_IN_NAMES or name in self.tools:
            log.warning("tool_left_out", tool=name[:100], reason="another tool of this worker has the name")
            return False
        return True

    def _set(self, at: int, name: str, text: str, tool: Tool[..., Any], register: Callable[[ToolTask], None]) -> None:
        self.news[name] = orjson.dumps([at, text])
        task = tool_task(tool)
        register(task)
        # In this order, and the other way round below: whoever finds the tool finds its task.
        self.tasks[name] = task
        self.tools[name] = tool
        CALLS.by_tool[name].queue = tool.spec.queue

    def remove(self, name: str) -> None:
        """Have this tool no more."""
        self.tools.pop(name, None)
        self.tasks.pop(name, None)
        if any(name in source.at_start for source in self.sources):
            self.news[name] = b""
        else:
            self.news.pop(name, None)  # a server may make up names without end

    def came_lately(self, name: str) -> bool:
        """Whether this tool has come, or changed, while the worker served."""
        return bool(self.news.get(name))

    def hear(self, name: str, news: bytes | None) -> None:
        """Take what the worker's own process tells with a call of this tool, in a child process that it has forked."""
        known = self._heard.get(name, self.news.get(name))
        if news == known:
            return
        self.tools.pop(name, None)
        self._heard[name] = news or b""
        if news:
            at, text = orjson.loads(news)
            tool = self._made(at, name, text)
            if tool is not None:
                self.tools[name] = tool


def tell_of(change: Change) -> None:
    """Log what has changed, and count it."""
    for kind, names in change._asdict().items():
        CALLS.tools_changed[kind] += len(names)
    log.info("tools_followed", added=_few(change.added), changed=_few(change.changed), removed=_few(change.removed))


def _few(names: tuple[str, ...]) -> str:
    shown = ", ".join(name[:NAME_CHARS] for name in names[:NAMES_TOLD])
    return shown if len(names) <= NAMES_TOLD else f"{shown} and {len(names) - NAMES_TOLD} more"
