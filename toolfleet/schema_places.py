"""Where a value stands in a JSON Schema: all schemas that may describe it, references followed.

Lenient: what cannot be followed may be anything, a secret included. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")
_CONDITIONS: Final = ("if", "then", "else", "not")
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_REST: Final = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains")


def parts(schema: Schema, root: Schema, seen: set[int]) -> Iterator[Schema]:
    """Yield all schemas that may describe the same value: references followed, alternatives side by side."""
    return _reach(schema, root, seen, _same_place)


def _same_place(schema: Schema, root: Schema) -> Iterator[Schema]:
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(schema.get(keyword), str):
            yield _resolved(schema[keyword], root)
    for keyword in ALTERNATIVES:
        yield from _schemas(schema.get(keyword))
    for keyword in _CONDITIONS:
        yield from _schemas([schema.get(keyword)])
    yield from _schemas(mapping(schema.get("dependentSchemas")).values())


def of_member(name: str, schemas: list[Schema]) -> list[Schema]:
    """Return the schemas of a member of an object that these describe; none where it is not declared."""
    found: list[Any] = []
    for schema in schemas:
        declared = [
            *(sub for declared, sub in mapping(schema.get("properties")).items() if declared == name),
            *(sub for pattern, sub in mapping(schema.get("patternProperties")).items() if _matches(pattern, name)),
        ]
        found += declared or [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
    return list(_schemas(found))


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # JSON Schema's expressions are not quite Python's
        return True


def of_item(at: int, schemas: list[Schema]) -> list[Schema]:
    """Return the schemas of an item of a list that these describe."""
    found: list[Any] = []
    for schema in schemas:
        positional = schema.get("prefixItems") or []
        found += [positional[at]] if at < len(positional) else [schema.get("items"), schema.get("unevaluatedItems")]
        found.append(schema.get("contains"))
    return list(_schemas(found))


def below(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield the schemas that a schema is made of."""
    yield from _same_place(schema, root)
    yield from (sub for keyword in _BY_NAME for sub in _schemas(mapping(schema.get(keyword)).values()))
    yield from _schemas(schema.get(keyword) for keyword in _REST)
    yield from _schemas(schema.get("prefixItems"))


def _resolved(reference: str, root: Schema) -> Schema:
    """Return what a reference inside the schema points at. What cannot be found may be anything, a secret included."""
    here: Any = root
    if reference != "#" and not reference.startswith("#/"):
        return {"writeOnly": True}
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        here = mapping(here).get(name)
    return here if isinstance(here, Mapping) else {"writeOnly": True}


def _schemas(candidates: Any) -> Iterator[Schema]:
    """Yield those that are schemas with something to say: not `true`, `false`, or a stranger's mistake."""
    if candidates is not None and not isinstance(candidates, str | bytes | Mapping):
        yield from (each for each in candidates if isinstance(each, Mapping))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one: a schema may be a stranger's mistake."""
    return value if isinstance(value, Mapping) else {}


def all_schemas(schema: Schema, root: Schema, seen: set[int]) -> Iterator[Schema]:
    """Yield the schema and all that it is made of."""
    return _reach(schema, root, seen, below)


def _reach(
    schema: Schema, root: Schema, seen: set[int], step: Callable[[Schema, Schema], Iterable[Schema]]
) -> Iterator[Schema]:
    """Yield the schema and all that steps from it lead to, each once."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    for each in step(schema, root):
        yield from _reach(each, root, seen, step)
