"""A form for the arguments of a tool, from its schema, and what a filled-in form asks for. Pure.

What is filled in becomes JSON text, never a value: a number goes out as it was typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

PREFIX: Final = "arg."

WHOLE: Final = "json"
"""The field that holds all arguments as JSON; what stands there counts, and the others do not."""


class NotFilledIn(ValueError):
    """A field holds what its type does not allow."""


class Field(NamedTuple):
    """One argument."""

    name: str
    kind: str
    """text, long, number, choice, secret or json."""
    description: str
    is_needed: bool
    choices: tuple[str, ...] = ()
    """JSON texts, for a choice."""
    default: str = ""
    hint: str = ""

    @property
    def field(self) -> str:
        """What its field in the form is called."""
        return f"{PREFIX}{self.name}"


def fields_of(schema: Mapping[str, Any]) -> list[Field]:
    """Return a field for each of the arguments that a tool takes, in its order."""
    needed = set(schema.get("required", ()))
    properties = schema.get("properties", {})
    return [_field(name, _resolved(of, schema), is_needed=name in needed) for name, of in properties.items()]


def arguments_of(form: Mapping[str, str], schema: Mapping[str, Any]) -> str:
    """Return the JSON text that a form asks for. Raises NotFilledIn."""
    whole = form.get(WHOLE, "").strip()
    if whole:
        return _checked(whole, "the arguments", dict)
    members = [
        f"{_text(field.name)}:{_value(field, form[field.field])}"
        for field in fields_of(schema)
        if form.get(field.field, "") or (field.is_needed and field.kind == "text")
    ]
    return "{" + ",".join(members) + "}"


def _value(field: Field, filled: str) -> str:
    if field.kind in {"text", "long", "secret"}:
        return _text(filled.replace("\r\n", "\n"))
    return _checked(filled.strip(), field.name, (int, float) if field.kind == "number" else object)


def _checked(text: str, name: str, kind: type | tuple[type, ...]) -> str:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise NotFilledIn(f"{name}: {error}") from None
    if not isinstance(value, kind) or (kind is not object and isinstance(value, bool)):
        raise NotFilledIn(f"{name}: not what is asked for")
    return text


def _field(name: str, of: Mapping[str, Any], *, is_needed: bool) -> Field:
    types = _types(of)
    kind = "json"
    choices: tuple[str, ...] = ()
    if "enum" in of:
        kind, choices = "choice", tuple(_json(value) for value in of["enum"])
    elif types == {"boolean"}:
        kind, choices = "choice", ("true", "false")
    elif types <= {"integer", "number"} and types:
        kind = "number"
    elif types == {"string"}:
        kind = "secret" if of.get("writeOnly") else "long" if of.get("maxLength", 0) > 200 else "text"
    return Field(
        name=name,
        kind=kind,
        description=str(of.get("description", "")),
        is_needed=is_needed,
        choices=choices,
        default=_json(of["default"]) if "default" in of else "",
        hint=" or ".join(sorted(types)),
    )


def _types(of: Mapping[str, Any]) -> set[str]:
    """Return the types that something may have, but null, which is what is left out."""
    given = of.get("type")
    types = {given} if isinstance(given, str) else set(given or ())
    for other in of.get("anyOf", ()):
        types |= _types(other)
    return types - {"null"}


def _resolved(of: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with what it refers to put in its place; one level, as deep as a form goes."""
    if not isinstance(of, Mapping):
        return {}
    named = str(of.get("$ref", "")).removeprefix("#/$defs/")
    found = schema.get("$defs", {}).get(named)
    return {**found, **{key: value for key, value in of.items() if key != "$ref"}} if found else of


def _text(text: str) -> str:
    return orjson.dumps(text).decode()


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
