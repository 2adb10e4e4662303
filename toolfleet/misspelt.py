"""Names that do not exist are refused with the nearest one that does: a misspelt option must not pass for none.

Knows names, and no option. Every part that takes options by name asks here.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from toolfleet.errors import UnknownOption

F = TypeVar("F", bound=Callable[..., Any])

FORBIDDEN: Final = "extra_forbidden"
"""What pydantic calls a field that its model does not have."""


def nearest(name: str, legal: Iterable[str], *, at_most: int = 1) -> list[str]:
    """Return the legal names that look most like this one, the likeliest first; none when none does."""
    return difflib.get_close_matches(name, sorted(legal), n=at_most)


def unknown(what: str, name: str, legal: Collection[str]) -> str:
    """`unknown option 'tool': did you mean 'tools'?`, or all there are when none is near."""
    if close := nearest(name, legal):
        return f"unknown {what} {name!r}: did you mean {close[0]!r}?"
    return f"unknown {what} {name!r}: there are {', '.join(sorted(legal))}" if legal else f"unknown {what} {name!r}"


def check_options(where: str, given: Iterable[str], legal: Collection[str]) -> None:
    """Raises UnknownOption for the first name that is not legal."""
    for name in given:
        if name not in legal:
            raise UnknownOption(f"{where}: {unknown('option', name, legal)}")


def exact(*more: type) -> Callable[[F], F]:
    """Make a function, or the making of a class, refuse keywords that neither it nor one of these TypedDicts has.

    It raises UnknownOption, which is a TypeError, when it is called, even if what it returns is awaited or iterated.
    """

    def decorate(function: F) -> F:
        if inspect.isclass(function):
            type.__setattr__(function, "__init__", _checked(function.__init__, more, function.__qualname__))
            return function
        return cast("F", _checked(function, more, function.__qualname__.removesuffix(".__init__")))

    return decorate


def _checked(function: Callable[..., Any], more: Iterable[type], where: str) -> Callable[..., Any]:
    legal = keywords(function).union(*(each.__annotations__ for each in more))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not legal.issuperset(kwargs):
            check_options(where, kwargs, legal)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await checked(*args, **kwargs)

    return awaited if inspect.iscoroutinefunction(function) else checked


def what_is_wrong(error: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Return what one of pydantic's errors says; of a field that the model does not have, the nearest that it has."""
    if error["type"] != FORBIDDEN:
        return str(error["msg"]).removeprefix("Value error, ")
    *place, name = error["loc"]
    return unknown("field", str(name), _names_at(place, model))


def complaints(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return all that is wrong with a value for this model, one by one."""
    return [
        f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {what_is_wrong(each, model)}"
        for each in error.errors(include_url=False, include_context=False)
    ]


def _names_at(place: Iterable[str | int], model: type[BaseModel]) -> list[str]:
    """Return the names that are legal at a place, if the models tell: where there may be several, they do not."""
    for step in place:
        if isinstance(step, int):
            continue
        field = model.model_fields.get(step)
        inner = [] if field is None else _models_of(field.annotation)
        if len(inner) != 1:
            return []
        [model] = inner
    return list(model.model_fields)


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_of(part)]


def keywords(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names that a function takes as keywords of its own."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return frozenset(each.name for each in parameters if each.kind in kinds and each.name != "self")
