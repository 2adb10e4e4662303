"""A function's signature, read once: which parameters the model fills in, which the worker, what comes back.

The parameters become the fields of one pydantic model, so that arguments are validated in one compiled pass.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from toolfleet.context import INJECTED, Context
from toolfleet.docstrings import Documentation
from toolfleet.errors import InvalidTool


class NotYetDefined(Exception):  # no error: the name may be defined by the time the tool is used
    """An annotation names something that does not exist yet."""


class Injection(Protocol):
    """Knows how to take a parameter's value from the context of the call."""

    def take(self, context: Context) -> Any:
        """Return the value to pass."""


class _TheContext:
    def take(self, context: Context) -> Context:
        return context


THE_CONTEXT: Final = _TheContext()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool takes and gives. `names` are the parameters in the order of the model's fields."""

    model: type[BaseModel]
    names: tuple[str, ...]
    positional_only: tuple[str, ...]
    injections: tuple[tuple[str, Injection], ...]
    returns: Any


def read_signature(
    function: Callable[..., Any],
    documented: Documentation,
    *,
    extra: Literal["forbid", "ignore"],
    local_names: Mapping[str, Any],
) -> Signature:
    """Read the signature of a function; `self` of a method in a class body is left out.

    Raises InvalidTool for what a JSON object cannot fill, NotYetDefined when an annotation is ahead of its definition.
    """
    parameters = list(_parameters(function))
    hints = _hints(function, local_names)
    injections: list[tuple[str, Injection]] = []
    fields: dict[str, Any] = {}
    names: list[str] = []
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        injection = _injection(annotation)
        if injection is not None:
            injections.append((parameter.name, injection))
            continue
        # Fields are numbered: a parameter may have any name, and `copy` or `json` are methods of a model.
        fields[f"p{len(names)}"] = _field(parameter, annotation, documented.parameters.get(parameter.name))
        names.append(parameter.name)
    return Signature(
        model=_model(function, fields, extra),
        names=tuple(names),
        positional_only=tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY),
        injections=tuple(injections),
        returns=hints.get("return", Any),
    )


def injections_of(function: Callable[..., Any]) -> tuple[tuple[str, Injection], ...]:
    """Return the parameters of a function that the model never sees, and what to put there. Raises NotYetDefined."""
    annotated = ((name, _injection(hint)) for name, hint in _hints(function, {}).items() if name != "return")
    return tuple((name, injection) for name, injection in annotated if injection is not None)


def is_method(function: Callable[..., Any]) -> bool:
    """Return whether a function was written in a class body to be called on an instance or a class."""
    scope, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    first = next(iter(inspect.signature(function).parameters.values()), None)
    in_class_body = bool(scope) and not scope.endswith("<locals>")
    return in_class_body and first is not None and first.name in ("self", "cls")


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters[1:] if is_method(function) else parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTool(
                f"tool {function.__qualname__}: *{parameter.name} has no place in a schema; name the parameters, "
                f"or use hand_written() with a schema of your own"
            )
        yield parameter


def _hints(function: Callable[..., Any], local_names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(local_names), include_extras=True)
    except NameError as error:
        raise NotYetDefined(str(error)) from error


def _injection(annotation: Any) -> Injection | None:
    """Return what to inject for an annotation, if it is one that the model never sees."""
    if get_origin(annotation) is Annotated:
        plain, *metadata = get_args(annotation)
        return next((mark for mark in metadata if isinstance(mark, INJECTED)), None) or _injection(plain)
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(_injection, get_args(annotation))), None)
    return THE_CONTEXT if annotation is Context else None


def _field(parameter: inspect.Parameter, annotation: Any, documented: str | None) -> tuple[Any, Any]:
    """Return the field of a parameter. What stands at the annotation counts for more than the docstring."""
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    declared = [item for item in (*metadata, parameter.default) if isinstance(item, FieldInfo)]
    texts = [item for item in metadata if isinstance(item, str)]
    described: dict[str, Any] = {}
    if not any(item.description for item in declared):
        described["description"] = texts[0] if texts else documented
    if not any(item.alias for item in declared):
        described["alias"] = parameter.name
    default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
    if default is PydanticUndefined and _takes_none(annotation) and all(item.is_required() for item in declared):
        default = None  # what a model leaves out of such a parameter is what it may say with null
    return Annotated[annotation, Field(**described)], default


def _takes_none(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _takes_none(get_args(annotation)[0])
    return get_origin(annotation) in (Union, types.UnionType) and types.NoneType in get_args(annotation)


def _model(function: Callable[..., Any], fields: dict[str, Any], extra: Literal["forbid", "ignore"]) -> type[BaseModel]:
    name = getattr(function, "__name__", "tool")
    try:
        model: type[BaseModel] = create_model(
            name, __config__=ConfigDict(extra=extra), __module__=function.__module__, **fields
        )
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InvalidTool(f"tool {name}: {error.message}") from error
    if not model.__pydantic_complete__:
        raise NotYetDefined(f"a model used by {name} refers to a type that is not defined")
    return model
