"""Large packages that few files of tests are about are imported when those run.

pytest imports all files of tests in each of its processes, and runs each in one of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class ImportedWhenUsed:
    """Stands for a module: `agents = ImportedWhenUsed("agents")` instead of `import agents`.

    Not importlib's own lazy module: pytest asks everything in a file for its class, for which that one is imported.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for wrappers and mocks
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
