"""Numbers as they were written: a float holds about 16 digits, and a Decimal all that a model wrote. Pure."""

from __future__ import annotations

import json
import re
import secrets
from decimal import Decimal
from typing import Any, Final, Self

from toolfleet.strict_json import outside_strings

_FRACTIONS: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""Numbers that a parser may make floats of, and integers, which it reads exactly."""

FLOAT_DIGITS: Final = 15
"""So many digits each float can hold."""


class WrittenNumber(float):
    """A float that knows how it was written."""

    __slots__ = ("written",)

    written: str

    def __new__(cls, written: str) -> Self:
        """Return the number in this text."""
        number = super().__new__(cls, written)
        number.written = written
        return number


_TOKEN: Final = secrets.token_hex(16)
"""Marks a number while it is a string; nobody who writes arguments knows it."""

_MARKED: Final = re.compile(f'"{_TOKEN}([^"]*)"')


def dump_exactly(value: Any) -> str:
    """Return the JSON text of what `read_exactly` has read, each number as it was written."""
    return _MARKED.sub(r"\1", json.dumps(_marked(value)))


def _marked(value: Any) -> Any:
    match value:
        case WrittenNumber():
            return _TOKEN + value.written
        case dict():
            return {name: _marked(item) for name, item in value.items()}
        case list():
            return [_marked(item) for item in value]
        case _:
            return value


def loses_digits(text: str) -> bool:
    """Whether a number of a JSON text has more digits than a float can hold."""
    return any(_is_long(number[0]) for number in _FRACTIONS.finditer(outside_strings(text)))


def _is_long(number: str) -> bool:
    return (
        len(number) > FLOAT_DIGITS
        and not number.lstrip("-").isdigit()
        and Decimal(repr(float(number))) != Decimal(number)
    )


def read_exactly(text: str) -> Any:
    """Return the value of a JSON text, already known to be one, each number of it as it was written."""
    return json.loads(text, parse_float=WrittenNumber)
