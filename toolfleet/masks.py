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

from toolfleet.arguments.exact_numbers import dump_exactly, loses_digits, read_exactly
from toolfleet.arguments.repair import decoded, recover
from toolfleet.errors import CallerError
from toolfleet.misspelt import nearest
from toolfleet.schema_places import ALTERNATIVES, Schema, all_schemas, below, mapping, of_item, of_member, parts
from toolfleet.strict_json import MAX_READ_DEPTH, is_deeper

MASK: Final = "***"
"""What stands for a secret."""

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
    return dump_exactly(MASK if arguments is None else masked(arguments, input_schema))


def masked(value: Any, input_schema: Schema) -> Any:
    """Return arguments that are read already with their secrets masked. Changes nothing in place."""
    return _masked(value, [input_schema], input_schema)


def secret_values(text: str, input_schema: Schema) -> frozenset[str]:
    """Return the values in a model's arguments that are masked for whoever looks, as texts."""
    if not has_secrets(input_schema) or (arguments := _read(text)) is None:
        return _NONE
    return frozenset(_hidden(arguments, masked(arguments, input_schema)))


_NONE: Final[frozenset[str]] = frozenset()


def _hidden(value: Any, shown: Any) -> Iterator[str]:
    """Yield what is not shown of a value, part by part."""
    match value:
        case None | bool():
            return
        case dict():
            known = shown if isinstance(shown, dict) else {}
            for name, item in value.items():
                if name not in known:
                    yield name
                yield from _hidden(item, known.get(name, MASK))
        case list():
            known_items = shown if isinstance(shown, list) else [MASK] * len(value)
            for item, known_item in zip(value, known_items, strict=True):
                yield from _hidden(item, known_item)
        case _ if shown == MASK:
            yield str(value)


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
        arguments = read_exactly(text) if loses_digits(text) else decoded(text)
        if not isinstance(arguments, dict):
            arguments = decoded(recover(text) or "null")
    except (ValueError, RecursionError):
        repaired = recover(text)
        arguments = None if repaired is None else decoded(repaired)
    return arguments if isinstance(arguments, dict) else None


def unmask_edited(edited: str, original: str | None) -> str:
    """Return edited arguments with what its editor saw as "***", and left so, as it was in the original.

    Raises CallerError where it cannot be told which secret is meant: in a list that was changed, or without the
    original.
    """
    if MASK not in edited:
        return edited
    if original is None:
        raise CallerError(f'the secret that "{MASK}" stands for is kept no longer: write it again')
    mine, theirs = _read(edited), _read(original)
    return edited if mine is None or theirs is None else dump_exactly(_with_masked_kept(mine, theirs))


def _with_masked_kept(edited: Any, original: Any) -> Any:
    match edited, original:
        case str(), _ if edited == MASK:
            return original
        case dict(), dict():
            return {name: _with_masked_kept(item, original.get(name, item)) for name, item in edited.items()}
        case list(), list() if _is_same(edited, original):
            return original
        case (list(), _) if MASK in json.dumps(edited):
            raise CallerError(f'the list with "{MASK}" was changed, and may mean another secret now: write it again')
        case _:
            return edited


def _is_same(edited: Any, original: Any) -> bool:
    """Whether nothing was changed, whatever a mask stands for."""
    match edited, original:
        case dict(), dict():
            return edited.keys() == original.keys() and all(_is_same(edited[name], original[name]) for name in edited)
        case list(), list():
            return len(edited) == len(original) and all(map(_is_same, edited, original))
        case _:
            return bool(edited in (MASK, original))


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
    return text if shown == arguments else dump_exactly(shown)


def _masked(value: Any, schemas: list[Schema], root: Schema) -> Any:
    if value is None:
        return None
    applicable = [part for schema in schemas for part in parts(schema, root, set())]
    if any(part.get("writeOnly") is True for part in applicable):
        return MASK
    if not any(_reaches_secret(part, root, set()) for part in applicable):
        return _beside_secrets(value, applicable, root, _facts(root).secret_names)
    match value:
        case dict():
            return dict(_masked_member(name, item, applicable, root) for name, item in value.items())
        case list():
            return [_inside(item, of_item(at, applicable), root) for at, item in enumerate(value)]
        case _:
            return MASK  # perhaps the object itself, written as a string


def _masked_member(name: str, item: Any, applicable: list[Schema], root: Schema) -> tuple[str, Any]:
    described = of_member(name, applicable)
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
                name: MASK if _is_like(name, secret) else _below(item, of_member(name, applicable), root, secret)
                for name, item in value.items()
            }
        case list():
            return [_below(item, of_item(at, applicable), root, secret) for at, item in enumerate(value)]
        case _:
            return value


def _below(value: Any, schemas: list[Schema], root: Schema, secret: frozenset[str]) -> Any:
    applicable = [part for schema in schemas for part in parts(schema, root, set())]
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
        elif not part.keys() & {"$ref", "$dynamicRef", *ALTERNATIVES}:
            return None
    return frozenset(types) or None


# --- which places hold secrets ----------------------------------------------------------------------------------------


def _reaches_secret(schema: Schema, root: Schema, seen: set[int]) -> bool:
    if id(schema) in seen:
        return False
    seen.add(id(schema))
    if schema.get("writeOnly") is True:
        return True
    return any(_reaches_secret(each, root, seen) for each in below(schema, root))


def _declared_names(root: Schema) -> frozenset[str]:
    schemas = all_schemas(root, root, set())
    return frozenset(name for schema in schemas for name in mapping(schema.get("properties")))


def _secret_names(root: Schema) -> frozenset[str]:
    """Return how the secrets of a schema are called, in one case."""
    schemas = all_schemas(root, root, set())
    declared = (member for schema in schemas for member in mapping(schema.get("properties")).items())
    return frozenset(name.casefold() for name, schema in declared if _is_secret(schema, root))


def _is_secret(schema: Any, root: Schema) -> bool:
    return isinstance(schema, Mapping) and any(part.get("writeOnly") is True for part in parts(schema, root, set()))
