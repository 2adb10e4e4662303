"""Answers that must be JSON of a given schema: what the model is told, and what is wrong with what it said. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from toolfleet.messages import SystemMessage
from toolfleet.strict_json import encodable, read_json

SCHEMAS_KEPT: Final = 256
"""So many schemas stay ready for use: runs of one kind share theirs, and strangers may send any number of others."""

_FENCED: Final = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


def instruction(schema: Mapping[str, Any]) -> SystemMessage:
    """What the model is told besides the conversation."""
    return SystemMessage(
        content="Give your final answer as one JSON value that satisfies this JSON Schema, and nothing else: "
        + orjson.dumps(schema).decode()
    )


def parsed(answer: str) -> Any:
    """The JSON value in an answer, with or without a code fence around it. Raises ValueError."""
    fenced = _FENCED.match(answer)
    return read_json(fenced.group(1) if fenced else answer)


def problem_with_schema(schema: Mapping[str, Any]) -> str | None:
    """Why no answer can be checked against this schema; None if it is one, and every reference leads into it."""
    try:
        return _problem_with_schema(orjson.dumps(schema))
    except (TypeError, RecursionError) as error:
        return f"it cannot be written as JSON: {error}"


@lru_cache(maxsize=SCHEMAS_KEPT)
def _problem_with_schema(text: bytes) -> str | None:
    import jsonschema  # noqa: PLC0415  # slow to import, and most runs have no schema
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # as above
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY  # noqa: PLC0415  # as above

    schema = orjson.loads(text)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        resolver = EMPTY_REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            resolver.lookup(reference)
    except jsonschema.SchemaError as error:
        return f"{error.json_path}: {error.message}"
    except Unresolvable as error:
        return f"it refers to {error.ref}, which it does not have itself"
    return None


def _references(schema: Any) -> Iterator[str]:
    parts = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    if isinstance(schema, Mapping) and isinstance(reference := schema.get("$ref"), str):
        yield reference
    for part in parts:
        yield from _references(part)


def problem_with(answer: str, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with an answer, in words for the model; None if it is as it should be."""
    try:
        value = parsed(answer)
    except ValueError as error:
        return f"your answer is not JSON: {error}"
    errors = sorted(_validator(orjson.dumps(schema)).iter_errors(value), key=lambda error: list(error.path))
    if not errors:
        return None
    listed = "; ".join(f"{'.'.join(map(str, error.path)) or 'the answer'}: {error.message}" for error in errors[:5])
    return encodable(f"your answer does not fit the schema: {listed}")


@lru_cache(maxsize=SCHEMAS_KEPT)
def _validator(schema: bytes) -> Any:
    import jsonschema  # noqa: PLC0415  # slow to import, and most runs have no schema
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415  # as above

    # Without a registry of its own it would fetch what a schema refers to, from wherever its author says.
    return jsonschema.Draft202012Validator(orjson.loads(schema), registry=EMPTY_REGISTRY)
