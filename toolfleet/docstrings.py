"""What a function's docstring and name say to a model. Google, NumPy and Sphinx styles; knows no types, no schemas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import docstring_parser

# "getWeather" and "HTTPStatus" have their seams between cases.
_SEAM: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")


@dataclass(frozen=True, slots=True)
class Documentation:
    """What a docstring says: about the function, and about its parameters by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def documentation(function: Callable[..., Any]) -> Documentation:
    """Read a function's docstring; one in no known style is all description."""
    text = inspect.getdoc(function)
    if not text:
        return Documentation()
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Documentation(description=text)
    return Documentation(
        description="\n\n".join(filter(None, (parsed.short_description, parsed.long_description))),
        parameters={
            name.lstrip("*"): " ".join(param.description.split())
            for param in parsed.params
            if param.description
            # NumPy documents parameters of one kind together: "x, y : int".
            for name in re.split(r"\s*,\s*", param.arg_name)
        },
    )


def words(name: str) -> str:
    """Return a name as words: "get_weather" and "getWeather" are "get weather"."""
    return " ".join(part if part.isupper() else part.lower() for part in _SEAM.split(name) if part)
