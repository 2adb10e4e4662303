"""What a tool's author says besides the function itself: how to poll, cancel, reconcile and take back its work.

Holds functions and their names; when they are called is the workers' matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from toolfleet.errors import InvalidTool

HookName = Literal["poll", "cancel", "reconcile", "compensate"]

R = TypeVar("R")


@dataclass(slots=True)
class Hooks:
    """The hooks of one tool, shared by the copies that are bound to objects."""

    tool: str
    _functions: dict[HookName, Callable[..., Any]] = field(default_factory=dict)

    def add(self, name: HookName, function: Callable[..., R]) -> Callable[..., R]:
        """Declare a hook. Raises InvalidTool for a second one of that name."""
        if name in self._functions:
            raise InvalidTool(f"tool {self.tool}: it has a {name} function already, {self._functions[name]!r}")
        self._functions[name] = function
        return function

    def get(self, name: HookName) -> Callable[..., Any] | None:
        """Return the hook, None if the tool has none."""
        return self._functions.get(name)
