"""Tools that a model may have run in the background: the argument by which it says so, added to a schema and taken out.

What is announced of such a tool has the argument among its parameters; whoever makes the call takes it out before the
call is signed. So no worker, in whatever language, and no tool ever sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolfleet.arguments.exact_numbers import dump_exactly, read_exactly
from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.errors import BadArguments, InvalidTool

ARGUMENT: Final = "run_in_background"
"""As agents' own shells call it, which models have been trained with."""

_DESCRIBED: Final = {
    "type": "boolean",
    "description": "true: answer at once with a task_id and go on by itself; task_result gets the result when you "
    "need it. Leave it out, or false, to wait for the result.",
}

_OTHER_MEMBERS: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "propertyNames"}
    | {"minProperties", "maxProperties", "patternProperties"}
)
"""What may say something of a member that stands in `properties` at the root of a schema."""


def with_argument(tool: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments as models are shown it. Raises InvalidTool where that cannot be said."""
    properties = schema.get("properties") or {}
    if ARGUMENT in properties:
        raise InvalidTool(
            f"tool {tool}: background='model' adds the parameter {ARGUMENT}, and the tool has one of its own: rename it"
        )
    if others := sorted(_OTHER_MEMBERS.intersection(schema)):
        raise InvalidTool(
            f"tool {tool}: background='model' adds a parameter, and {', '.join(others)} at the root of the schema may "
            "forbid it: describe the arguments by `properties` alone"
        )
    return {**schema, "properties": {**properties, ARGUMENT: dict(_DESCRIBED)}}


def without_argument(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an announced schema as it was declared, for models whose calls are waited for in any case."""
    shown = {name: each for name, each in schema["properties"].items() if name != ARGUMENT}
    required = [name for name in schema.get("required", ()) if name != ARGUMENT]
    return {**schema, "properties": shown, **({"required": required} if "required" in schema else {})}


def as_strict(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an announced schema with the argument, where it has it, required: strict providers take no other."""
    required = schema.get("required", ())
    if ARGUMENT not in schema.get("properties", ()) or ARGUMENT in required:
        return schema
    return {**schema, "required": [*required, ARGUMENT]}


def taken_out(tool: str, arguments: str, limits: ArgumentLimits) -> tuple[str, bool]:
    """Return arguments as the tool is to get them, to the digit, and whether they ask for the background.

    A text that cannot be read comes back as it is: nothing of it will run.
    """
    try:
        members = read_exactly(readable(tool, arguments, limits))
    except (BadArguments, ValueError):
        return arguments, False
    if ARGUMENT not in members:
        return arguments, False
    is_asked = is_asked_for(members)
    del members[ARGUMENT]
    return dump_exactly(members), is_asked


def is_asked_for(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments ask for the background. Whatever is not a clear yes has the result waited for."""
    asked = arguments.get(ARGUMENT)
    return asked is True or (isinstance(asked, str) and asked.strip().lower() == "true")
