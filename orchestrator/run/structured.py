"""Answers that must be JSON of a given schema: what the model is told, and what is wrong with what it said. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import orjson

from toolfleet.messages import SystemMessage

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
    return json.loads(fenced.group(1) if fenced else answer)


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
    return f"your answer does not fit the schema: {listed}"


@cache
def _validator(schema: bytes) -> Any:
    import jsonschema  # noqa: PLC0415  # slow to import, and most runs have no schema

    return jsonschema.Draft202012Validator(orjson.loads(schema))
