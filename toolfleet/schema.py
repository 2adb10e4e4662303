"""A signature's JSON Schema, draft 2020-12: what the model is told about arguments and result.

Objects are closed at every level, and what pydantic adds for its own sake is left out: a schema costs tokens each turn.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.errors import InvalidTool
from toolfleet.media import Media


class ArgumentsSchema(GenerateJsonSchema):
    """Closes every object, unless its author declared `extra="allow"`."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # pydantic's own spelling

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's signature
        """Never: a title repeats the field's name."""
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Of a pydantic model."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Of a dataclass."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Of a TypedDict."""
        return _closed(super().typed_dict_schema(schema))


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    return (
        {**schema, "additionalProperties": schema.get("additionalProperties", False)}
        if "properties" in schema
        else schema
    )


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a tool's arguments. Raises InvalidTool when a type has no JSON Schema."""
    try:
        schema = model.model_json_schema(schema_generator=ArgumentsSchema)
    except PydanticInvalidForJsonSchema as error:
        raise InvalidTool(f"tool {model.__name__}: {error.message}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def output_schema(returns: Any) -> dict[str, Any] | None:
    """Return the schema of what a tool returns; None where nothing definite is declared."""
    if returns in (Any, None, type(None), object) or _is_result(returns) or _holds_media(returns):
        return None
    try:
        return TypeAdapter(returns).json_schema(mode="serialization", schema_generator=ArgumentsSchema)
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError):
        return None  # such results are possible, they are just not announced


def _is_result(returns: Any) -> bool:
    """Return whether a tool may answer with a result record, whose content is any text."""
    if get_origin(returns) in (Union, types.UnionType, Annotated):
        return any(_is_result(part) for part in get_args(returns))
    return returns in (Returned, Failed, Submitted)


def _holds_media(returns: Any) -> bool:
    """Return whether media may be among what a tool returns: they travel beside a text, which has no schema."""
    return returns is Media or any(map(_holds_media, get_args(returns)))
