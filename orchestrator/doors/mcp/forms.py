"""Questions of running tools as the forms that clients show: flat objects of texts, numbers, yes or no, and choices.

Any other schema becomes that of a field named `answer`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

ANSWER_FIELD: Final = "answer"

FIELD_TYPES: Final = frozenset({"string", "number", "integer", "boolean"})
"""What a field of a client's form may be."""

_DEFINED: Final = "#/$defs/"


def form_request(message: str, schema: Mapping[str, Any]) -> types.InputRequest | None:
    """Make the request that asks a client's user what a running tool asks; None for what no form can show."""
    whole = _resolved(schema, schema)
    if not _is_form(whole):
        whole = {"properties": {ANSWER_FIELD: whole}, "required": [ANSWER_FIELD]}
    declared = whole.get("properties", {})
    if not declared and whole.get("additionalProperties") is not False:
        return None  # an object of whatever names
    fields = {name: _field(each, schema) for name, each in declared.items()}
    if None in fields.values():
        return None
    form = {"type": "object", "properties": fields, "required": list(whole.get("required", []))}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=form))


def answer_in(content: object, schema: Mapping[str, Any]) -> Any:
    """Return what a client's user has filled in, as the question's schema has it."""
    filled = content if isinstance(content, Mapping) else {}
    return dict(filled) if _is_form(_resolved(schema, schema)) else filled.get(ANSWER_FIELD)


def _is_form(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _field(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a field as forms have it, with what it refers to in its place; None for one that no form has."""
    if not isinstance(schema, Mapping):
        return None
    field = _resolved(schema, root)
    match field.get("type"):
        case str(type_) if type_ in FIELD_TYPES:
            return field
        case "array" if _is_choice(field.get("items")):
            return field
        case None if _is_choice(field):
            return {"type": "string", **field}
        case _:
            return None


def _is_choice(schema: object) -> bool:
    """Return whether this is one of some texts."""
    choices = schema.get("enum") if isinstance(schema, Mapping) else None
    return isinstance(choices, list) and all(isinstance(each, str) for each in choices)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with what it refers to, and what it says besides; as it is where that is not defined in it."""
    name = str(schema.get("$ref", ""))
    defined = root.get("$defs", {}).get(name.removeprefix(_DEFINED)) if name.startswith(_DEFINED) else None
    if not isinstance(defined, Mapping) or "$ref" in defined:
        return schema
    return {**defined, **{word: said for word, said in schema.items() if word not in {"$ref", "$defs"}}}
