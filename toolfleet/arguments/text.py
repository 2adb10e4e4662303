"""The arguments of a call as a text that any JSON parser reads, for code that has no schema of the tool."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from toolfleet.arguments.parsing import ArgumentLimits, Arguments, NotAnObject, not_json, read_arguments


class _AnyObject:
    """Takes whatever is one JSON object."""

    def __init__(self, tool: str) -> None:
        self.tool = tool

    def read(self, text: str) -> dict[str, Any]:
        """Return the object. Raises NotAnObject."""
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise not_json(str(error)) from None
        if not isinstance(value, dict):
            raise NotAnObject("not a JSON object")
        return value

    def check(self, values: Any) -> dict[str, Any]:
        """Return the same."""
        return dict(values)


def readable(tool: str, text: str, limits: ArgumentLimits) -> str:
    """Return the text of one JSON object: the same text, or what can be recovered of it. Raises BadArguments."""
    return object_text(read_arguments(text, _AnyObject(tool), limits))


def object_text(read: Arguments) -> str:
    """Return arguments that were read as the text of one JSON object: their own where it is one."""
    own = read.raw.strip()
    if read.repaired or not own.startswith("{"):
        return json.dumps(read.values)
    return own
