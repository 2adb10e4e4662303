"""Arguments that a model is asked for and no tool gets: added to the schema that it is shown, taken out of the call.

Whoever makes a call takes them out before it is signed. So no worker, in whatever language, and no tool ever sees them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from toolfleet.arguments.exact_numbers import dump_exactly, read_exactly
from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.errors import BadArguments

_OTHER_MEMBERS: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "propertyNames"}
    | {"minProperties", "maxProperties", "patternProperties"}
)
"""What may say something of a member that stands in `properties` at the root of a schema."""


def why_not(name: str, schema: Mapping[str, Any]) -> str | None:
    """Why a schema cannot have one more argument of this name, with what to do; None if it can."""
    if name in (schema.get("properties") or {}):
        return f"adds the parameter {name}, and the tool has one of its own: rename it"
    if others := sorted(_OTHER_MEMBERS.intersection(schema)):
        return (
            f"adds a parameter, and {', '.join(others)} at the root of the schema may forbid it: describe the "
            "arguments by `properties` alone"
        )
    return None


def with_argument(
    schema: Mapping[str, Any], name: str, described: Mapping[str, Any], *, required: bool = False
) -> dict[str, Any]:
    """Return a schema that can have it (`why_not`) with one more argument."""
    more = {**schema, "properties": {**(schema.get("properties") or {}), name: dict(described)}}
    return {**more, "required": [*schema.get("required", ()), name]} if required else more


def without_argument(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a schema as it was before it had this argument."""
    shown = {each: described for each, described in schema["properties"].items() if each != name}
    required = [each for each in schema.get("required", ()) if each != name]
    return {**schema, "properties": shown, **({"required": required} if "required" in schema else {})}


def taken_out(
    tool: str, arguments: str, names: Collection[str], limits: ArgumentLimits
) -> tuple[str, Mapping[str, Any]]:
    """Return arguments as the tool is to get them, to the digit, and what those of these names were.

    A text that cannot be read comes back as it is: nothing of it will run.
    """
    try:
        members = read_exactly(readable(tool, arguments, limits))
    except (BadArguments, ValueError):
        return arguments, {}
    taken = {name: members.pop(name) for name in names if name in members}
    return (dump_exactly(members), taken) if taken else (arguments, taken)
