"""Every documentation string of Python's standard library, module by module."""

from __future__ import annotations

import ast
import sys
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

STDLIB = Path(sysconfig.get_path("stdlib"))

NOT_LIBRARY = {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages"}


class Documented(NamedTuple):
    """Something with a documentation string: its full name, what it is, and the text."""

    name: str
    kind: str
    text: str


def modules() -> list[str]:
    """The top-level modules and packages that have source code."""
    return sorted(name for name in sys.stdlib_module_names if name not in NOT_LIBRARY and any(_sources(name)))


def documented(module: str) -> Iterator[Documented]:
    """What a module or package documents."""
    for path in _sources(module):
        parts = path.relative_to(STDLIB).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        with tokenize.open(path) as file:
            yield from _documented(ast.parse(file.read()), name, "module")


def _documented(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str, kind: str
) -> Iterator[Documented]:
    if text := ast.get_docstring(node):
        yield Documented(name, kind, text)
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _documented(child, f"{name}.{child.name}", "class")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented(child, f"{name}.{child.name}", "method" if kind == "class" else "function")


def _sources(module: str) -> Iterator[Path]:
    if (STDLIB / f"{module}.py").is_file():
        yield STDLIB / f"{module}.py"
    for path in sorted((STDLIB / module).rglob("*.py")):
        if not NOT_LIBRARY & set(path.relative_to(STDLIB).parts):
            yield path
