"""What a person writes in place of a model's arguments: checked while that person can hear of it."""

from __future__ import annotations

from toolfleet.arguments.parsing import NotAnObject
from toolfleet.errors import BadArguments, InvalidTool
from toolfleet.tool import ToolSpec


def must_fit(arguments: str, spec: ToolSpec) -> None:
    """Raise BadArguments for what is no JSON object, or does not fit the tool's schema."""
    from toolfleet.handwritten import SchemaReader  # noqa: PLC0415  # jsonschema is slow to import, and few need it

    try:
        SchemaReader(spec.name, spec.input_schema).read(arguments)
    except NotAnObject as error:
        raise BadArguments(spec.name, str(error)) from None
    except InvalidTool:
        return  # a schema that nothing can be checked against: the tool's worker decides
