"""Secrets in arguments: which parameters hold them, and the arguments with their values masked, for whoever only looks.

Goes by `"writeOnly": true` in a tool's input schema. In doubt it masks: what fits no declared place beside a secret may
be the secret in the wrong place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from toolfleet.arguments.repair import decoded, recover
from toolfleet.strict_json import MAX_READ_DEPTH, is_deeper

MASK: Final = "***"
"""What stands for a secret."""

Schema = Mapping[str, Any]

_CACHED_SCHEMAS: Final = 4096


class Secret:
    """Marks a parameter whose value must not be shown: `token: Annotated[str, Secret()]`. `SecretStr` needs no mark."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Write it down where masks look for it."""
        return {**handler(schema), "writeOnly": True}


def mask_arguments(text: str, input_schema: Schema) -> str:
    """Return a model's arguments as JSON text, with "***" for the values of secret parameters.

    Text of a tool without secrets comes back as it is; what cannot be read for a tool with secrets is masked wholly.
    """
    if not has_secrets(input_schema) or not text.strip():
        return text
    arguments = _read(text)
    return json.dumps(MASK if arguments is None else masked(arguments, input_schema))


def masked(value: Any, input_schema: Schema) -> Any:
    """Return arguments that are read already with their secrets masked. Changes nothing in place."""
    return _masked(value, [input_schema], input_schema)


def has_secrets(input_schema: Schema) -> bool:
    """Whether any value that the schema describes is a secret. Remembered for each schema, which must not change."""
    known = _known.get(id(input_schema))
    if known is not None and known[0] is input_schema:
        return known[1]
    if len(_known) >= _CACHED_SCHEMAS:
        _known.clear()
    found = _reaches_secret(input_schema, input_schema, set())
    _known[id(input_schema)] = (input_schema, found)
    return found


_known: dict[int, tuple[Schema, bool]] = {}
"""By identity, because a dict has no hash; the schema is kept with its answer, so that no other can take its place."""


def _read(text: str) -> dict[str, Any] | None:
    if is_deeper(text, MAX_READ_DEPTH):  # as deep as this no tool is called, and there is nothing to be shown
        return None
    try:
        arguments = decoded(text)
        if not isinstance(arguments, dict):
            arguments = decoded(recover(text) or "null")
    except (ValueError, RecursionError):
        repaired = recover(text)
        arguments = None if repaired is None else decoded(repaired)
    return arguments if isinstance(arguments, dict) else None


def _masked(value: Any, schemas: list[Schema], root: Schema) -> Any:
    if value is None:
        return None
    applicable = [part for schema in schemas for part in _parts(schema, root, set())]
    if any(part.get("writeOnly") is True for part in applicable):
        return MASK
    if not any(_reaches_secret(part, root, set()) for part in applicable):
        return value
    match value:
        case dict():
            return {name: _inside(item, _of_member(name, applicable), root) for name, item in value.items()}
        case list():
            return [_inside(item, _of_item(at, applicable), root) for at, item in enumerate(value)]
        case _:
            return MASK  # perhaps the object itself, written as a string


def _inside(value: Any, schemas: list[Schema], root: Schema) -> Any:
    return _masked(value, schemas, root) if schemas else MASK


# --- walking a schema ------------------------------------------------------------------------------------------------

_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")
_CONDITIONS: Final = ("if", "then", "else", "not")
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_REST: Final = ("additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains")


def _parts(schema: Schema, root: Schema, seen: set[int]) -> Iterator[Schema]:
    """Yield all schemas that may describe the same value: references followed, alternatives side by side."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    for each in _same_place(schema, root):
        yield from _parts(each, root, seen)


def _same_place(schema: Schema, root: Schema) -> Iterator[Schema]:
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(schema.get(keyword), str):
            yield _resolved(schema[keyword], root)
    for keyword in _ALTERNATIVES:
        yield from _schemas(schema.get(keyword))
    for keyword in _CONDITIONS:
        yield from _schemas([schema.get(keyword)])
    yield from _schemas(_mapping(schema.get("dependentSchemas")).values())


def _of_member(name: str, schemas: list[Schema]) -> list[Schema]:
    found: list[Any] = []
    for schema in schemas:
        declared = [
            *(sub for declared, sub in _mapping(schema.get("properties")).items() if declared == name),
            *(sub for pattern, sub in _mapping(schema.get("patternProperties")).items() if _matches(pattern, name)),
        ]
        found += declared or [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
    return list(_schemas(found))


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # JSON Schema's expressions are not quite Python's
        return True


def _of_item(at: int, schemas: list[Schema]) -> list[Schema]:
    found: list[Any] = []
    for schema in schemas:
        positional = schema.get("prefixItems") or []
        found += [positional[at]] if at < len(positional) else [schema.get("items"), schema.get("unevaluatedItems")]
        found.append(schema.get("contains"))
    return list(_schemas(found))


def _reaches_secret(schema: Schema, root: Schema, seen: set[int]) -> bool:
    if id(schema) in seen:
        return False
    seen.add(id(schema))
    if schema.get("writeOnly") is True:
        return True
    below = [
        *_same_place(schema, root),
        *(sub for keyword in _BY_NAME for sub in _schemas(_mapping(schema.get(keyword)).values())),
        *_schemas(schema.get(keyword) for keyword in _REST),
        *_schemas(schema.get("prefixItems")),
    ]
    return any(_reaches_secret(each, root, seen) for each in below)


def _resolved(reference: str, root: Schema) -> Schema:
    """Return what a reference inside the schema points at. What cannot be found may be anything, a secret included."""
    here: Any = root
    if reference != "#" and not reference.startswith("#/"):
        return {"writeOnly": True}
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        here = _mapping(here).get(name)
    return here if isinstance(here, Mapping) else {"writeOnly": True}


def _schemas(candidates: Any) -> Iterator[Schema]:
    """Yield those that are schemas with something to say: not `true`, `false`, or a stranger's mistake."""
    if candidates is not None and not isinstance(candidates, str | bytes | Mapping):
        yield from (each for each in candidates if isinstance(each, Mapping))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
