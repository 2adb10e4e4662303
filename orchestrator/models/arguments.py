"""Arguments of a past call as a provider takes them back: always a JSON object, whatever the model once wrote.

Pure. Only for showing a history to a model; calls are run with the text as it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from toolfleet.arguments.repair import recover
from toolfleet.strict_json import encodable, read_json

MALFORMED: Final = "malformed_arguments"

RECOVERED_KEPT: Final = 128
KNOWN_MAX: Final = 4096
KNOWN_CHARS: Final = 1000
"""Of how many calls it is remembered how their arguments are shown, and how long those may be: a history is shown again
in each turn."""

_HALVES: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Two of them may be a character; one alone is none, and refused by strict parsers."""


def as_object(arguments: str) -> Mapping[str, Any]:
    """Return the arguments as an object. Malformed ones are what their call was run with, if anything could be read.

    What is not even that stands under one key: the model should see its mistake.
    """
    return _known_object(arguments) if len(arguments) <= KNOWN_CHARS else _object(arguments)


def as_object_text(arguments: str) -> str:
    """Return the same as JSON text. What is right as it stands stays so to the last digit."""
    return _known_text(arguments) if len(arguments) <= KNOWN_CHARS else _text(arguments)


def _object(arguments: str) -> Mapping[str, Any]:
    value = _read(arguments)
    return {MALFORMED: encodable(arguments)} if value is None else value


def _text(arguments: str) -> str:
    if not _HALVES.search(arguments) and arguments.startswith("{") and _is_strict(arguments):
        return arguments
    return json.dumps(_object(arguments), ensure_ascii=False, allow_nan=False)


_known_object: Final = lru_cache(maxsize=KNOWN_MAX)(_object)
_known_text: Final = lru_cache(maxsize=KNOWN_MAX)(_text)


def _read(arguments: str) -> dict[str, Any] | None:
    if not arguments.strip():
        return {}
    try:
        value = read_json(arguments)
    except ValueError:
        return _recovered(arguments)
    if value is None:
        return {}
    return value if isinstance(value, dict) else _recovered(arguments)


@lru_cache(maxsize=RECOVERED_KEPT)
def _recovered(arguments: str) -> dict[str, Any] | None:
    recovered = recover(arguments)
    try:
        return None if recovered is None else read_json(recovered)
    except ValueError:
        return None


def _is_strict(text: str) -> bool:
    try:
        return isinstance(read_json(text), dict)
    except ValueError:
        return False
