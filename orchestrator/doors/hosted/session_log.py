"""What the events of a session come to: which tool uses are open, and whether there is anything left to do. Pure.

Events are read by what they have, not by their type in the SDK: what is garbage there says nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TOOL_USE: Final = "agent.custom_tool_use"
TOOL_RESULT: Final = "user.custom_tool_result"
OVER: Final = ("session.status_terminated", "session.deleted")
IDLE: Final = "session.status_idle"
THREAD_OVER: Final = "session.thread_status_terminated"
SAYS_NOTHING: Final = (TOOL_RESULT, THREAD_OVER)
"""Neither ends a turn nor begins one."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A custom tool that the session's agent wants to be called."""

    id: str
    tool: str
    input: Any
    thread: str


@dataclass(slots=True)
class SessionLog:
    """The fold of a session's events, each of which may come more than once."""

    uses: dict[str, ToolUse] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    is_over: bool = False
    turn_has_ended: bool = False
    _ended_threads: set[str] = field(default_factory=set)

    @property
    def open(self) -> list[ToolUse]:
        """The uses without a result, in the order of the session; none of threads that take no result any more."""
        return [
            use for use in self.uses.values() if use.id not in self.answered and use.thread not in self._ended_threads
        ]

    def on(self, event: Any) -> None:
        """Take in one event."""
        kind = getattr(event, "type", None)
        if kind == TOOL_USE and (use := _tool_use(event)):
            self.uses.setdefault(use.id, use)
        elif kind == TOOL_RESULT:
            self.answered.add(str(getattr(event, "custom_tool_use_id", "")))
        elif kind == THREAD_OVER and (thread := getattr(event, "session_thread_id", None)):
            self._ended_threads.add(str(thread))
        elif kind in OVER:
            self.is_over = True
        if isinstance(kind, str) and kind not in SAYS_NOTHING:
            self.turn_has_ended = kind == IDLE and _ends_turn(event)


def _tool_use(event: Any) -> ToolUse | None:
    id_, name = getattr(event, "id", None), getattr(event, "name", None)
    # An id that could not be written back would keep all other results of its session from being posted.
    if not (isinstance(id_, str) and id_ and id_.isascii() and isinstance(name, str)):
        return None
    thread = getattr(event, "session_thread_id", None)
    return ToolUse(id_, name, getattr(event, "input", None), thread if isinstance(thread, str) else "")


def _ends_turn(event: Any) -> bool:
    """Return whether the session waits for nothing that a client of it owes: `requires_action` alone says that."""
    reason = getattr(event, "stop_reason", None)
    kind = reason.get("type") if isinstance(reason, Mapping) else getattr(reason, "type", None)
    return kind != "requires_action"
