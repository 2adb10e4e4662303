"""The JSON text that a model wrote -> the arguments that a tool is called with.

Owns the limits and the order: strict reading first, repair only when that fails.
An `ArgumentReader` knows what is legal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from toolfleet.arguments.repair import decoded, recover
from toolfleet.errors import BadArguments
from toolfleet.strict_json import MAX_DEPTH, depth, outside_strings

MAX_BYTES: Final = 1_048_576
"""A model's longest reply is a few hundred thousand characters; a message of more is not a model's."""

MAX_ELEMENTS: Final = 100_000
"""Each array item and object member becomes a Python object of 50 bytes or more, whatever its text is short of."""

MAX_DIGITS: Final = 4300
"""CPython's own limit on the digits of an integer in text: beyond it reading one takes quadratic time."""


class NotAnObject(Exception):  # not an error yet: repair may still find the object
    """Raised by a Reader for text that is not one JSON object; says why."""


class ArgumentLimits(NamedTuple):
    """What is taken from a model. Checked before anything is parsed."""

    max_bytes: int = MAX_BYTES
    max_depth: int = MAX_DEPTH
    max_elements: int = MAX_ELEMENTS


DEFAULT_LIMITS: Final = ArgumentLimits()


class ArgumentReader(Protocol):
    """Reads JSON text against one tool's declaration."""

    @property
    def tool(self) -> str:
        """The name of the tool."""

    def read(self, text: str) -> dict[str, Any]:
        """Return the typed arguments by parameter name. Raises NotAnObject or BadArguments."""

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Typed arguments by parameter name, checked once more. Raises BadArguments."""


@dataclass(slots=True)  # not frozen: one is made for each call, and that would make it three times as slow
class Arguments:
    """The arguments of one call: typed values by parameter name, and the text that they came from."""

    values: dict[str, Any] = field(repr=False)
    raw: str = field(repr=False)
    repaired: bool = False
    """Whether `raw` was not usable as it stood."""


def read_arguments(raw: str, reader: ArgumentReader, limits: ArgumentLimits = DEFAULT_LIMITS) -> Arguments:
    """Read what the model wrote. Nothing at all and `null` count as no arguments. Raises BadArguments."""
    text = raw.strip()
    if not text or text == "null":
        text = "{}"
    _check_limits(text, reader.tool, limits)
    try:
        return Arguments(reader.read(text), raw)
    except NotAnObject as reason:
        return Arguments(_read_repaired(text, reader, reason, limits), raw, repaired=True)
    except BadArguments as refused:
        return Arguments(_read_unwrapped(text, reader, refused, limits), raw, repaired=True)


def not_json(reason: str) -> NotAnObject:
    """Return what a parser says, in words that help a model."""
    if "number out of range" in reason:
        return NotAnObject(f"a number of more than {MAX_DIGITS} digits, which no tool takes; a string may hold it")
    return NotAnObject(f"not valid JSON: {reason}")


def _read_repaired(text: str, reader: ArgumentReader, reason: NotAnObject, limits: ArgumentLimits) -> dict[str, Any]:
    repaired = recover(text)
    hopeless = BadArguments(reader.tool, f"{reason}. Send the arguments as one JSON object.")
    if repaired is None:
        raise hopeless from reason
    _check_limits(repaired, reader.tool, limits)
    try:
        return reader.read(repaired)
    except NotAnObject:
        raise hopeless from reason
    except BadArguments as refused:
        return _read_unwrapped(repaired, reader, refused, limits)


def _read_unwrapped(text: str, reader: ArgumentReader, refused: BadArguments, limits: ArgumentLimits) -> dict[str, Any]:
    """Try again with JSON that was sent as a string where an object or a list is wanted; else raise `refused`."""
    arguments = decoded(text)
    unwrapped = {
        name: value for name in refused.parameters if (value := structure_in(arguments.get(name), limits)) is not None
    }
    if not unwrapped:
        raise refused
    rewritten = json.dumps(arguments | unwrapped)
    _check_limits(rewritten, reader.tool, limits)
    try:
        return reader.read(rewritten)
    except (NotAnObject, BadArguments):
        raise refused from None


def structure_in(value: Any, limits: ArgumentLimits) -> dict[str, Any] | list[Any] | None:
    """Return the object or the list that a text is the JSON of, None for what is no such text."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        _check_limits(value, "", limits)
        structure = decoded(value)
    except (ValueError, BadArguments):
        return None
    return structure if isinstance(structure, dict | list) else None


# --- limits ----------------------------------------------------------------------------------------------------------


def _check_limits(text: str, tool: str, limits: ArgumentLimits) -> None:
    """Refuse what would cost more to parse than any honest call. Raises BadArguments."""
    max_bytes, max_depth, max_elements = limits
    # No text has more brackets or commas than characters, and none more than four bytes to a character.
    if len(text) <= max_depth and len(text) * 4 <= max_bytes and len(text) <= max_elements:
        return
    _check_size(text, tool, max_bytes)
    if text.count("{") + text.count("[") <= max_depth and len(text) <= max_elements:
        return  # neither limit can be reached, whatever is inside strings
    structure = outside_strings(text)
    elements = structure.count(",") + structure.count("{") + structure.count("[")
    if elements > max_elements:
        raise BadArguments(
            tool, f"about {elements} values; at most {max_elements} are taken. Send fewer, in several calls if need be."
        )
    if depth(structure) > max_depth:
        raise BadArguments(tool, f"nested more than {max_depth} levels deep. Send a flatter structure.")


def _check_size(text: str, tool: str, max_bytes: int) -> None:
    if len(text) * 4 <= max_bytes:
        return
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > max_bytes:
        raise BadArguments(
            tool,
            f"{size_bytes} bytes of arguments; at most {max_bytes} are taken. Send less, in several calls if need be.",
        )
