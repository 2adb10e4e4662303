"""What a schema must be for a provider to hold its model to it (`@tool(strict=True)`). Pure.

OpenAI and Anthropic ask for the same: each object names all that it may have, and all of that is required.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def problem_with(schema: Any) -> str | None:
    """Why no provider would hold a model to this schema, with what to do; None if there is nothing against it."""
    return next(_problems(schema, ()), None)


def _problems(schema: Any, place: tuple[str, ...]) -> Iterator[str]:
    if isinstance(schema, list):
        for at, each in enumerate(schema):
            yield from _problems(each, (*place, str(at)))
    if not isinstance(schema, Mapping):
        return
    if schema.get("type") == "object" or "properties" in schema:
        yield from _of_object(schema, place)
    for keyword, within in schema.items():
        if keyword in {"properties", "$defs"} and isinstance(within, Mapping):
            for name, each in within.items():
                yield from _problems(each, (*place, name))
        elif keyword in {"items", "prefixItems", "anyOf", "allOf", "oneOf"}:
            yield from _problems(within, place)


def _of_object(schema: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[str]:
    where = f" in {'.'.join(place)}" if place else ""
    optional = [name for name in schema.get("properties", ()) if name not in schema.get("required", ())]
    if optional:
        yield f"{optional[0]}{where} may be left out: give it no default, and let it be None if need be"
    if schema.get("additionalProperties") is not False:
        yield f"what may be{where or ' passed'} is not all named: use a model with fields, and extra='forbid'"
