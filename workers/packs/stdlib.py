"""Tools that look into the source of Python's own standard library: real input that every machine has.

Three pools are used: listing is `io`, parsing a module is `cpu`, the index of all identifiers is a long-running job.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import TypedDict

from toolfleet import Context, ToolError, tool

STDLIB = Path(sysconfig.get_path("stdlib"))


class ModuleFacts(TypedDict):
    """What analyse_module finds."""

    module: str
    functions: int
    longest_function: str | None
    longest_function_lines: int
    with_docstring: int


class IdentifierIndex(TypedDict):
    """What index_identifiers finds."""

    identifiers: int
    most_common: list[tuple[str, int]]


@tool(read_only=True)
async def list_modules() -> list[str]:
    """List the modules of Python's standard library that have source code."""
    return sorted(name for name in sys.stdlib_module_names if name != "test" and any(sources_of(name)))


@tool(read_only=True)
def analyse_module(module: str) -> ModuleFacts:
    """Count the functions of one module or package, and find its longest one.

    Args:
        module: name of the module, as list_modules gives it
    """
    paths = list(sources_of(module))
    if not paths:
        raise ToolError(f"the standard library has no source of a module {module!r}")
    functions = [function for path in paths for function in functions_of(path)]
    longest = max(functions, key=lines_of, default=None)
    return ModuleFacts(
        module=module,
        functions=len(functions),
        longest_function=longest.name if longest else None,
        longest_function_lines=lines_of(longest) if longest else 0,
        with_docstring=sum(ast.get_docstring(function, clean=False) is not None for function in functions),
    )


@tool(read_only=True, long_running=True)
def index_identifiers(ctx: Context) -> IdentifierIndex:
    """Index every identifier in the source of the standard library. Takes a while."""
    modules = sorted(name for name in sys.stdlib_module_names if name != "test")
    counts: Counter[str] = Counter()
    for done, module in enumerate(modules, start=1):
        for path in sources_of(module):
            counts.update(identifiers_of(path))
        ctx.progress(done / len(modules), f"{module} ({done} of {len(modules)})")
    return IdentifierIndex(identifiers=len(counts), most_common=counts.most_common(10))


def sources_of(module: str) -> Iterator[Path]:
    """The source files of a module of the standard library, or of a package there without its tests."""
    if module not in sys.stdlib_module_names:  # a name from a model may be a path to anywhere
        return
    if (STDLIB / f"{module}.py").is_file():
        yield STDLIB / f"{module}.py"
    for path in sorted((STDLIB / module).rglob("*.py")):
        if not {"test", "tests", "idle_test", "site-packages"} & set(path.relative_to(STDLIB).parts):
            yield path


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    with tokenize.open(path) as file:
        return ast.parse(file.read())


def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method defined in a file, nested ones included."""
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines a function's definition spans."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def identifiers_of(path: Path) -> Iterator[str]:
    """Every identifier in a file, as often as it is written; of a dotted name, each part."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant):
            continue
        for field, value in ast.iter_fields(node):
            if field != "type_comment":
                for name in value if isinstance(value, list) else [value]:
                    if isinstance(name, str) and name != "*":
                        yield from name.split(".")
