"""Tools whose schema was written by hand, or comes from a file or a database: a spec and a handler.

Arguments are checked against that schema as it stands. Kept apart because jsonschema is slow to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import jsonschema
from jsonschema.protocols import Validator
from pydantic_core import from_json

from toolfleet import masks
from toolfleet.arguments import complaints
from toolfleet.arguments.parsing import NotAnObject, not_json
from toolfleet.declaration import Declaration, Options, spec_of, wants_history
from toolfleet.errors import BadArguments, InvalidTool
from toolfleet.signature import injections_of
from toolfleet.tool import Tool

SCHEMA_NAMES: Final = ("input_schema", "inputSchema", "parameters")
"""How this project, MCP and OpenAI call the schema of the arguments."""


def hand_written(spec: Mapping[str, Any], handler: Callable[..., Any]) -> Tool[..., Any]:
    """Return a tool from `{"name", "description", "input_schema", …options of @tool}`.

    The handler takes all arguments as one dict, and a `Context` if it has a parameter for one. Raises InvalidTool.
    """
    described = dict(spec)
    schema = next((described.pop(name) for name in SCHEMA_NAMES if name in described), None)
    output_schema = described.pop("output_schema", None)
    try:
        options = Options(**described)
    except TypeError as error:
        raise InvalidTool(f"tool {spec.get('name')!r}: {error}") from error
    if not options.name or not options.description:
        raise InvalidTool(f"a hand-written tool needs a name and a description, got {sorted(spec)}")
    reader = SchemaReader(options.name, schema)
    injections = injections_of(handler)
    declaration = Declaration(
        spec=spec_of(
            options.name,
            options,
            is_async=inspect.iscoroutinefunction(handler),
            description=options.description,
            input_schema=schema,
            output_schema=output_schema,
            wants_history=wants_history(injections),
        ),
        reader=reader,
        injections=injections,
        whole=_whole(handler, {name for name, _ in injections}),
    )
    return Tool(handler, options, lambda: declaration)


def _whole(handler: Callable[..., Any], injected: set[str]) -> str:
    free = [name for name in inspect.signature(handler).parameters if name not in injected]
    if len(free) != 1:
        raise InvalidTool(f"handler {handler!r} must take the arguments as one dict, and takes {free}")
    return free[0]


class SchemaReader:
    """Reads the arguments of one tool against a JSON Schema."""

    def __init__(self, tool: str, schema: Any) -> None:
        self.tool = tool
        self._validator = _validator(tool, schema)
        self._schema: Mapping[str, Any] = schema
        self._known = tuple(schema.get("properties", ()))

    def read(self, text: str) -> dict[str, Any]:
        """Return the arguments as the model sent them. Raises NotAnObject or BadArguments."""
        try:
            arguments = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise not_json(str(error)) from None
        if not isinstance(arguments, dict):
            what = "" if masks.has_secrets(self._schema) else f" but {complaints.shown(arguments)}"
            raise NotAnObject(f"not a JSON object{what}")
        return self.check(arguments)

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same arguments, if they fit the schema. Raises BadArguments."""
        arguments = dict(values)
        shown = masks.masked(arguments, self._schema) if masks.has_secrets(self._schema) else arguments
        errors = list(self._validator.iter_errors(arguments))
        if errors:
            raise BadArguments(
                self.tool,
                complaints.listed(text for error in errors for text in self._complaints(error, shown)),
                parameters={str(error.absolute_path[0]) for error in errors if error.absolute_path},
            )
        return arguments

    def _complaints(self, error: jsonschema.ValidationError, shown: Any) -> Iterator[str]:
        """`shown`: the arguments, with secrets masked."""
        here = list(error.absolute_path)
        visible = _at(shown, here)
        sent: Any = error.instance
        required: Any = error.validator_value
        match error.validator:
            case "required":
                yield from (complaints.missing([*here, name]) for name in required if name not in sent)
            case "additionalProperties" if error.validator_value is False:
                legal = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
                for name in sent:
                    if name not in legal:
                        yield complaints.unknown([*here, masks.shown_name(name, self._schema)], tuple(legal))
            case keyword if visible != error.instance:  # the error's own text quotes the value
                wanted = complaints.shown({str(keyword): error.validator_value})
                yield complaints.unfit(here, visible, f"does not fit {wanted}") if here else f"does not fit {wanted}"
            case _ if here:
                yield complaints.unfit(here, error.instance, error.message)
            case _:
                yield error.message


def _at(arguments: Any, path: list[str | int]) -> Any:
    """Return the value at a path; where a mask took the place of all that was there, the mask."""
    for step in path:
        if arguments == masks.MASK or (isinstance(arguments, dict) and step not in arguments):
            return masks.MASK
        arguments = arguments[step]
    return arguments


def _validator(tool: str, schema: Any) -> Validator:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidTool(f'tool {tool}: the input schema must be a JSON Schema of {{"type": "object"}}')
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InvalidTool(f"tool {tool}: not a JSON Schema: {error.json_path}: {error.message}") from error
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
