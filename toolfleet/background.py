"""Tools that a model may have run in the background: the argument by which it says so.

What is announced of such a tool has the argument among its parameters; how it is taken out of a call again is said in
`extra_arguments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolfleet import extra_arguments
from toolfleet.errors import InvalidTool

ARGUMENT: Final = "run_in_background"
"""As agents' own shells call it, which models have been trained with."""

_DESCRIBED: Final = {
    "type": "boolean",
    "description": "true: answer at once with a task_id and go on by itself; task_result gets the result when you "
    "need it. Leave it out, or false, to wait for the result.",
}


def with_argument(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments as models are shown it. Raises InvalidTool where that cannot be said."""
    if against := extra_arguments.why_not(ARGUMENT, schema):
        raise InvalidTool(f"tool {tool}: background='model' {against}")
    return extra_arguments.with_argument(schema, ARGUMENT, _DESCRIBED)


def without_argument(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an announced schema as it was declared, for models whose calls are waited for in any case."""
    return extra_arguments.without_argument(schema, ARGUMENT)


def as_strict(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an announced schema with the argument, where it has it, required: strict providers take no other."""
    required = schema.get("required", ())
    if ARGUMENT not in schema.get("properties", ()) or ARGUMENT in required:
        return schema
    return {**schema, "required": [*required, ARGUMENT]}


def is_asked_for(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments ask for the background. Whatever is not a clear yes has the result waited for."""
    asked = arguments.get(ARGUMENT)
    return asked is True or (isinstance(asked, str) and asked.strip().lower() == "true")
