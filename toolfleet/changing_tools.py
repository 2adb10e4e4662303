"""Tools that come and go while a worker serves them. The module that has them has a `ChangingTools` beside them.

Each such tool is written down as a text, of which any process of a worker makes the same tool. Knows no worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from toolfleet.tool import Tool
from toolfleet.toolbox import resolve

Tell = Callable[[Mapping[str, str]], Awaitable[None]]
"""Takes all that there are now, by name, as they are written down."""


class ChangingTools(ABC):
    """Who knows which tools of a module there are now."""

    @property
    @abstractmethod
    def at_start(self) -> Mapping[str, str]:
        """Those that the module had when it was imported, by name, as they are written down."""

    @abstractmethod
    def made_of(self, written: str) -> Tool[..., Any]:
        """Return the tool that is written down so. Raises InvalidTool."""

    @abstractmethod
    async def follow(self, tell: Tell) -> None:
        """Tell all that there are each time that they have changed. Lasts until it is cancelled."""


def changing_in(module_names: Iterable[str]) -> tuple[ChangingTools, ...]:
    """Return who follows the tools of these modules; most have nobody. Raises ToolModuleError."""
    modules = [resolve(name, "tools") for name in module_names]
    found = [value for each in modules if isinstance(each, ModuleType) for value in vars(each).values()]
    return tuple({id(each): each for each in found if isinstance(each, ChangingTools)}.values())
