"""A stranger's JSON Schema, made harmless: whatever it says, checking a value against it takes time that is bounded.

Regular expressions can take minutes for a line, references can unfold without end, and an alternative within an
alternative doubles the work. What is taken out is told in the description, so that a model still knows of it; the
server checks it anyway. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import orjson

Schema = dict[str, Any]

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 60
MAX_WIDTH: Final = 100
"""Schemas that one value may have to be checked against, with those of what it is part of; references unfolded."""

NOT_CHECKED: Final = (
    "pattern", "patternProperties", "propertyNames", "uniqueItems", "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip
"""Keywords whose cost a stranger can choose: expressions, comparisons of all items, and what checks others again."""

LEFT_OUT: Final = ("$id", "$schema", "$anchor", "$vocabulary", "$comment")
"""Keywords that would change what a reference means, or are for nobody here."""

NOT_UNDERSTOOD: Final = ("$dynamicRef", "$recursiveRef")

LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
BY_NAME: Final = ("properties", "dependentSchemas", "$defs", "definitions")
SINGLE: Final = (
    "items", "additionalProperties", "contains", "if", "then", "else", "not",
)  # fmt: skip


class TooCostly(ValueError):
    """A schema that cannot be made harmless; the text says why, of "its schema"."""


def tamed(schema: Any) -> Schema:
    """The schema without what a check of it could not bear, which its descriptions tell. Raises TooCostly."""
    if not isinstance(schema, Mapping):
        raise TooCostly("it is no object")
    try:
        text = orjson.dumps(schema)
    except (TypeError, ValueError):
        raise TooCostly("it is no JSON, or nested too deeply") from None
    if len(text) > MAX_BYTES:
        raise TooCostly(f"it has {len(text)} bytes, and {MAX_BYTES} are allowed")
    copy: Schema = _without(orjson.loads(text), 0)
    _Unfolding(copy, set(_places(copy))).check()
    return copy


def _without(schema: Any, depth: int) -> Any:
    """A schema without the keywords that are not checked here, and so on in its parts."""
    if depth > MAX_DEPTH:
        raise TooCostly(f"it is nested more than {MAX_DEPTH} deep")
    if not isinstance(schema, dict):
        return schema
    if unknown := [keyword for keyword in NOT_UNDERSTOOD if keyword in schema]:
        raise TooCostly(f"it uses {unknown[0]}")
    kept = {key: value for key, value in schema.items() if key not in (*NOT_CHECKED, *LEFT_OUT)}
    told = {key: schema[key] for key in NOT_CHECKED if key in schema}
    if kept.get("format") == "regex":
        told["format"] = kept.pop("format")
    if "patternProperties" in schema:  # what these allowed would now be forbidden
        kept.pop("additionalProperties", None)
    if told:
        kept["description"] = f"{kept.get('description', '')} {json.dumps(told, ensure_ascii=False)}".strip()
    return _with_parts(kept, lambda part: _without(part, depth + 1))


def _with_parts(schema: Schema, changed: Any) -> Schema:
    for keyword in SINGLE:
        if keyword in schema:
            schema[keyword] = changed(schema[keyword])
    for keyword in LISTS:
        if isinstance(schema.get(keyword), list):
            schema[keyword] = [changed(part) for part in schema[keyword]]
    for keyword in BY_NAME:
        if isinstance(schema.get(keyword), dict):
            schema[keyword] = {name: changed(part) for name, part in schema[keyword].items()}
    return schema


class _Unfolding:
    """Follows every reference of a schema once; one that leads back to where it stands is taken out."""

    def __init__(self, root: Schema, places: set[int]) -> None:
        self._root = root
        self._places = places
        self._widths: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self) -> None:
        """Raise TooCostly when one value would have to be checked against too many schemas."""
        if self._width(self._root) > MAX_WIDTH:
            raise TooCostly(f"one value may have to be checked against more than {MAX_WIDTH} schemas")

    def _width(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 0
        if id(schema) in self._widths:
            return self._widths[id(schema)]
        self._open.add(id(schema))
        if len(self._open) > MAX_DEPTH * 4:
            raise TooCostly("its references lead too deep")
        members = max(map(self._width, _named(schema, "properties")), default=0)
        width = 1 + self._behind_reference(schema) + members + sum(map(self._width, _parts(schema)))
        self._open.discard(id(schema))
        self._widths[id(schema)] = min(width, MAX_WIDTH + 1)
        return self._widths[id(schema)]

    def _behind_reference(self, schema: Schema) -> int:
        reference = schema.get("$ref")
        if reference is None:
            return 0
        target = _pointed_at(reference, self._root)
        if not isinstance(target, bool) and id(target) not in self._places:
            raise TooCostly(f"it refers to {reference[:80]}, which is no schema")  # and was not made harmless
        if id(target) not in self._open:
            return self._width(target)
        del schema["$ref"]
        schema["description"] = f"{schema.get('description', '')} of the form of {reference}".strip()
        return 0


def _places(schema: Any) -> Iterator[int]:
    """Yield the identity of each schema within a schema, definitions included."""
    if isinstance(schema, dict):
        yield id(schema)
        for part in (*_parts(schema), *(part for keyword in BY_NAME for part in _named(schema, keyword))):
            yield from _places(part)


def _parts(schema: Schema) -> list[Any]:
    """The schemas that a value, or each of its items, may have to be checked against besides."""
    lists = [part for keyword in LISTS if isinstance(schema.get(keyword), list) for part in schema[keyword]]
    return [*lists, *_named(schema, "dependentSchemas"), *(schema[keyword] for keyword in SINGLE if keyword in schema)]


def _named(schema: Schema, keyword: str) -> list[Any]:
    return list(schema[keyword].values()) if isinstance(schema.get(keyword), dict) else []


def _pointed_at(reference: Any, root: Schema) -> Any:
    """What a JSON pointer within the document points at."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise TooCostly("it refers to another document, or by an anchor")
    at: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and name in at:
            at = at[name]
        elif isinstance(at, list) and name.isdecimal() and int(name) < len(at):
            at = at[int(name)]
        else:
            raise TooCostly(f"it refers to {reference[:80]}, which it does not have")
    return at
