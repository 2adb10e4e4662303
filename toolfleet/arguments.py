"""The JSON text that a model wrote -> the arguments that a tool is called with.

Owns the limits and the order: strict reading first, repair only when that fails. What is legal, a `Reader` knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from toolfleet.errors import ToolfleetError
from toolfleet.repair import decoded, recover

MAX_CHARS: Final = 1_048_576
"""A model's longest reply is a few hundred thousand characters; a message of more is not a model's."""

MAX_DEPTH: Final = 64
"""Deeper than any schema a model can follow, and far from where parsers and JSON Schema checks run out of stack."""

MAX_ELEMENTS: Final = 100_000
"""Each array item and object member becomes a Python object of 50 bytes or more, whatever its text is short of."""

# Possessive, and the end of the text closes a string: linear on every input.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class BadArguments(ToolfleetError):
    """The arguments of a call cannot be used; the text is written for the model, which may try again.

    `parameters` are the top-level ones that do not fit.
    """

    def __init__(self, tool: str, complaint: str, parameters: Iterable[str] = ()) -> None:
        super().__init__(f"bad arguments for {tool}: {complaint}")
        self.parameters = frozenset(parameters)


class NotAnObject(Exception):  # not an error yet: repair may still find the object
    """Raised by a Reader for text that is not one JSON object; says why."""


class Reader(Protocol):
    """Reads JSON text against one tool's declaration."""

    @property
    def tool(self) -> str:
        """The name of the tool."""

    def read(self, text: str) -> dict[str, Any]:
        """The typed arguments by parameter name. Raises NotAnObject or BadArguments."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call: typed values by parameter name, and the text that they came from."""

    values: dict[str, Any]
    raw: str
    repaired: bool = False
    """Whether `raw` was not usable as it stood."""


def read_arguments(raw: str, reader: Reader) -> Arguments:
    """Read what the model wrote. Nothing at all and `null` count as no arguments. Raises BadArguments."""
    text = raw.strip()
    if not text or text == "null":
        text = "{}"
    _check_limits(text, reader.tool)
    try:
        return Arguments(reader.read(text), raw)
    except NotAnObject as reason:
        return Arguments(_read_repaired(text, reader, reason), raw, repaired=True)
    except BadArguments as refused:
        return Arguments(_read_unwrapped(text, reader, refused), raw, repaired=True)


def _read_repaired(text: str, reader: Reader, reason: NotAnObject) -> dict[str, Any]:
    repaired = recover(text)
    hopeless = BadArguments(reader.tool, f"{reason}. Send the arguments as one JSON object.")
    if repaired is None:
        raise hopeless from reason
    _check_limits(repaired, reader.tool)
    try:
        return reader.read(repaired)
    except NotAnObject:
        raise hopeless from reason
    except BadArguments as refused:
        return _read_unwrapped(repaired, reader, refused)


def _read_unwrapped(text: str, reader: Reader, refused: BadArguments) -> dict[str, Any]:
    """Try again with JSON that was sent as a string where an object or a list is wanted; else raise `refused`."""
    arguments = decoded(text)
    unwrapped = {
        name: value for name in refused.parameters if (value := _structure_in(arguments.get(name))) is not None
    }
    if not unwrapped:
        raise refused
    rewritten = json.dumps(arguments | unwrapped)
    _check_limits(rewritten, reader.tool)
    try:
        return reader.read(rewritten)
    except (NotAnObject, BadArguments):
        raise refused from None


def _structure_in(value: Any) -> dict[str, Any] | list[Any] | None:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        _check_limits(value, "")
        structure = decoded(value)
    except (ValueError, BadArguments):
        return None
    return structure if isinstance(structure, dict | list) else None


# --- limits ----------------------------------------------------------------------------------------------------------


def _check_limits(text: str, tool: str) -> None:
    """Refuse what would cost more to parse than any honest call. Raises BadArguments."""
    if len(text) > MAX_CHARS:
        raise BadArguments(tool, f"{len(text)} characters of arguments; at most {MAX_CHARS} are taken.")
    brackets = text.count("{") + text.count("[")
    if brackets <= MAX_DEPTH and len(text) < MAX_ELEMENTS:
        return  # neither limit can be reached, whatever is inside strings
    structure = _STRING.sub("", text)
    elements = structure.count(",") + structure.count("{") + structure.count("[")
    if elements > MAX_ELEMENTS:
        raise BadArguments(tool, f"about {elements} values; at most {MAX_ELEMENTS} are taken.")
    if _depth(structure) > MAX_DEPTH:
        raise BadArguments(tool, f"nested more than {MAX_DEPTH} levels deep.")


def _depth(structure: str) -> int:
    depth = deepest = 0
    for bracket in re.finditer(r"[\[{}\]]", structure):
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
