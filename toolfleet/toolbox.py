"""Collects tools: from modules by name, and from modules, classes and instances at hand.

Imports what it is told to, so only workers and tests use it; refuses two tools under one name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from types import MethodType, ModuleType
from typing import Any

from toolfleet.errors import DuplicateTool, InvalidSettings, NoToolsFound, ToolModuleError
from toolfleet.tool import Tool


def load_tools(module_names: Iterable[str]) -> dict[str, Tool[..., Any]]:
    """Import modules and collect their tools by name. `module:object` takes the tools of one object in a module.

    Raises ToolModuleError, NoToolsFound or DuplicateTool.
    """
    return by_name(found for name in module_names for found in tools_in(resolve(name, "tools")))


def by_name(tools: Iterable[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Tools by name. One that is met twice, because modules import each other's, counts once. Raises DuplicateTool."""
    collected: dict[str, Tool[..., Any]] = {}
    for found in tools:
        known = collected.setdefault(found.spec.name, found)
        if not known.is_same_as(found):
            raise DuplicateTool(
                f"two tools are called {found.spec.name!r}: {known.source} and {found.source}; "
                f"rename one with @tool(name=...)"
            )
    return collected


def tools_in(source: object) -> list[Tool[..., Any]]:
    """Return the tools of a module, of an instance (its methods, bound), or of a class (its static and class methods).

    A tool is its own source. Raises NoToolsFound.
    """
    if isinstance(source, Tool):
        return [source]
    found = _in_module(source) if isinstance(source, ModuleType) else _in_object(source)
    usable = [each for each in found if not each.is_unbound]
    if not usable:
        remedy = "its tools are methods, give an instance of it" if found else "mark functions with @tool"
        raise NoToolsFound(f"no tools found in {_described(source)}; {remedy}")
    return usable


def _in_module(module: ModuleType) -> list[Tool[..., Any]]:
    return [value for value in vars(module).values() if isinstance(value, Tool)]


def _in_object(source: object) -> list[Tool[..., Any]]:
    cls = source if inspect.isclass(source) else type(source)
    # Looked up statically: `getattr` would run the properties of a stranger's object.
    members = {name: inspect.getattr_static(source, name) for name in dir(source)}
    found = (_bound(value, source, cls) for value in members.values())
    return [each for each in found if each is not None]


def _bound(member: object, source: object, cls: type) -> Tool[..., Any] | None:
    """Return the tool that a class member is, bound to what Python would bind it to."""
    match member:
        case staticmethod(__func__=Tool() as static):
            return static
        case classmethod(__func__=Tool() as of_class):
            return of_class.bound_to(cls)
        case Tool() if member.is_unbound and source is not cls:
            return member.bound_to(source)
        case Tool():
            return member
        case MethodType(__func__=Tool() as method, __self__=receiver):
            return method.bound_to(receiver)
    return None


def resolve(name: str, what: str) -> object:
    """The module, or the object in a module, that a name stands for. Raises ToolModuleError, which says `what`.

    What a module says of its settings is raised as it is: InvalidSettings.
    """
    module_name, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for step in path.split(".") if path else ():
            found = getattr(found, step)
    except InvalidSettings:  # of a pack: it names the variable, and nothing is wrong with the module
        raise
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        text = " ".join(str(error).split())
        if module_name.endswith(".py") or "/" in module_name:
            text += f"; name the module, not its file: {_module_of(module_name)}"
        raise ToolModuleError(f"cannot load {what} from {name!r}: {type(error).__name__}: {text}") from error
    return found


def _module_of(path: str) -> str:
    """The module that somebody probably meant by a path."""
    return ".".join(part for part in path.removesuffix(".py").split("/") if part not in {"", "."})


def _described(source: object) -> str:
    if isinstance(source, ModuleType):
        return f"module {source.__name__}"
    if inspect.isclass(source):
        return f"class {source.__qualname__}"
    return f"an instance of {type(source).__qualname__}"
