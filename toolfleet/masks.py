"""Secrets in arguments: which parameters hold them, and the arguments with their values masked, for whoever only looks.

Goes by `"writeOnly": true` in a tool's input schema. In doubt it masks: what fits no declared place beside a secret may
be the secret in the wrong place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from toolfleet.arguments.repair import decoded, recover
from toolfleet.misspelt import nearest
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


class _Facts(NamedTuple):
    """What a schema says of secrets: whether there are any, how they are called, and all names in it."""

    has_secrets: bool
    secret_names: frozenset[str]
    names: frozenset[str]


def has_secrets(input_schema: Schema) -> bool:
    """Whether any value that the schema describes is a secret. Remembered for each schema, which must not change."""
    return _facts(input_schema).has_secrets


def _facts(input_schema: Schema) -> _Facts:
    known = _known.get(id(input_schema))
    if known is not None and known[0] is input_schema:
        return known[1]
    if len(_known) >= _CACHED_SCHEMAS:
        _known.clear()
    found = _NO_SECRETS
    if _reaches_secret(input_schema, input_schema, set()):
        found = _Facts(True, _secret_names(input_schema), _declared_names(input_schema))  # a NamedTuple
    _known[id(input_schema)] = (input_schema, found)
    return found


_NO_SECRETS: Final = _Facts(False, frozenset(), frozenset())  # a NamedTuple

_known: dict[int, tuple[Schema, _Facts]] = {}
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


def unmask_edited(edited: str, original: str) -> str:
    """Return edited arguments with what its editor saw as "***", and left so, as it was in the original."""
    if MASK not in edited:
        return edited
    mine, theirs = _read(edited), _read(original)
    return edited if mine is None or theirs is None else json.dumps(_with_masked_kept(mine, theirs))


def _with_masked_kept(edited: Any, original: Any) -> Any:
    match edited, original:
        case str(), _ if edited == MASK:
            return original
        case dict(), dict():
            return {name: _with_masked_kept(item, original.get(name, item)) for name, item in edited.items()}
        case list(), list():
            kept = [_with_masked_kept(mine, theirs) for mine, theirs in zip(edited, original, strict=False)]
            return kept + edited[len(kept) :]
        case _:
            return edited


def shown_name(name: str, input_schema: Schema) -> str:
    """Return the name of an argument that is not declared, for whoever looks; "***" if it may be a secret itself.

    A name that resembles a declared one is a slip; any other may be a value that stands where a name should.
    """
    has_any, _, names = _facts(input_schema)
    return name if not has_any or name in names or nearest(name, names) else MASK


def mask_by_name(text: str, input_schemas: Iterable[Schema]) -> str:
    """Return arguments of a tool that nobody knows, with what is called like a secret of one of these tools masked."""
    secret = frozenset(name for schema in input_schemas for name in _facts(schema).secret_names)
    if not secret or not text.strip():
        return text
    arguments = _read(text)
    shown = MASK if arguments is None else _beside_secrets(arguments, [{}], {}, secret)
    return text if shown == arguments else json.dumps(shown)


def _masked(value: Any, schemas: list[Schema], root: Schema) -> Any:
    if value is None:
        return None
    applicable = [part for schema in schemas for part in _parts(schema, root, set())]
    if any(part.get("writeOnly") is True for part in applicable):
        return MASK
    if not any(_reaches_secret(part, root, set()) for part in applicable):
        return _beside_secrets(value, applicable, root, _facts(root).secret_names)
    match value:
        case dict():
            return dict(_masked_member(name, item, applicable, root) for name, item in value.items())
        case list():
            return [_inside(item, _of_item(at, applicable), root) for at, item in enumerate(value)]
        case _:
            return MASK  # perhaps the object itself, written as a string


def _masked_member(name: str, item: Any, applicable: list[Schema], root: Schema) -> tuple[str, Any]:
    described = _of_member(name, applicable)
    return (name, _masked(item, described, root)) if described else (shown_name(name, root), MASK)


def _inside(value: Any, schemas: list[Schema], root: Schema) -> Any:
    return _masked(value, schemas, root) if schemas else MASK


# --- values where no secret is declared ------------------------------------------------------------------------------


def _beside_secrets(value: Any, applicable: list[Schema], root: Schema, secret: frozenset[str]) -> Any:
    """Return a value that has its own place, unless it does not fit there, or names a secret inside."""
    if not _fits(value, _types(applicable)):
        return MASK
    match value:
        case str() if secret and _names_a_secret(secret).search(value):
            return MASK
        case dict():
            return {
                name: MASK if _is_like(name, secret) else _below(item, _of_member(name, applicable), root, secret)
                for name, item in value.items()
            }
        case list():
            return [_below(item, _of_item(at, applicable), root, secret) for at, item in enumerate(value)]
        case _:
            return value


def _below(value: Any, schemas: list[Schema], root: Schema, secret: frozenset[str]) -> Any:
    applicable = [part for schema in schemas for part in _parts(schema, root, set())]
    return _beside_secrets(value, applicable, root, secret)


def _is_like(name: str, secret: frozenset[str]) -> bool:
    return name.casefold() in secret or bool(nearest(name.casefold(), secret))


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _names_a_secret(secret: frozenset[str]) -> re.Pattern[str]:
    """Finds the name of a secret before its value in any text: `"password": `, `password=`."""
    names = "|".join(map(re.escape, sorted(secret)))
    return re.compile(rf"""(?<![^\W_])(?:{names})(?![^\W_])[\s"'\\]*[:=]""", re.IGNORECASE)


def _fits(value: Any, types: frozenset[str] | None) -> bool:
    """Whether a value could be meant for these types. A number or a boolean may be written as a string."""
    if types is None or value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return "string" in types or re.fullmatch(r"\s*(true|false|null|[-+.\deE]{1,40})?\s*", value) is not None
    return ("object" if isinstance(value, dict) else "array") in types


def _types(applicable: list[Schema]) -> frozenset[str] | None:
    """Return the JSON types that a place is declared to have; None where it may have any."""
    types: set[str] = set()
    for part in applicable:
        if isinstance(declared := part.get("type"), str):
            types.add(declared)
        elif isinstance(declared, list):
            types.update(declared)
        elif "enum" in part or "const" in part:
            types.add("string")
        elif not part.keys() & {"$ref", "$dynamicRef", *_ALTERNATIVES}:
            return None
    return frozenset(types) or None


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
    return any(_reaches_secret(each, root, seen) for each in _below_schema(schema, root))


def _below_schema(schema: Schema, root: Schema) -> Iterator[Schema]:
    yield from _same_place(schema, root)
    yield from (sub for keyword in _BY_NAME for sub in _schemas(_mapping(schema.get(keyword)).values()))
    yield from _schemas(schema.get(keyword) for keyword in _REST)
    yield from _schemas(schema.get("prefixItems"))


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


def _all_schemas(schema: Schema, root: Schema, seen: set[int]) -> Iterator[Schema]:
    """Yield the schema and all that it is made of."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    yield schema
    for each in _below_schema(schema, root):
        yield from _all_schemas(each, root, seen)


def _declared_names(root: Schema) -> frozenset[str]:
    schemas = _all_schemas(root, root, set())
    return frozenset(name for schema in schemas for name in _mapping(schema.get("properties")))


def _secret_names(root: Schema) -> frozenset[str]:
    """Return how the secrets of a schema are called, in one case."""
    schemas = _all_schemas(root, root, set())
    declared = (member for schema in schemas for member in _mapping(schema.get("properties")).items())
    return frozenset(name.casefold() for name, schema in declared if _is_secret(schema, root))


def _is_secret(schema: Any, root: Schema) -> bool:
    return isinstance(schema, Mapping) and any(part.get("writeOnly") is True for part in _parts(schema, root, set()))
