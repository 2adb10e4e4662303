"""What a line asks for, in either format; a line that cannot be asked is a record too, with the reason.

Reads, and knows of runs only which options they have. The formats themselves are `own_format` and `openai_format`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from toolfleet.orchestrator.batch import openai_format, own_format
from toolfleet.orchestrator.batch.input import MAX_LINE_BYTES, RawLine
from toolfleet.orchestrator.batch.records import AskedLine, Form, LineQuestion, RefusedLine, Unreadable

OPENAI_FIELDS: Final = {"custom_id", "body", "url", "method"}


def read_lines(lines: Iterable[RawLine], *, model: str | None) -> Iterator[AskedLine | RefusedLine]:
    """Each line as what it asks for, or why it cannot be asked.

    `model` is the one that answers; lines in OpenAI's format that name another one are refused, None takes any. Ids
    are remembered as digests, some 100 bytes for each line: doubled ones are refused, but for the first.
    """
    form: Form = "own"
    first_seen: dict[bytes, int] = {}
    for raw in lines:
        fields: Any = None
        try:
            fields = _fields(raw)
            form = _form(fields)
            question = _question(fields, form, model)
            digest = hashlib.blake2b(str(question.id).encode(), digest_size=12).digest()
            if (first := first_seen.setdefault(digest, raw.number)) != raw.number:
                raise Unreadable(f"the id {question.id!r} is doubled; line {first} has it")
        except Unreadable as unreadable:
            yield RefusedLine(raw.number, _id(fields, form), form, f"line {raw.number}: {unreadable}")
        else:
            yield AskedLine(raw.number, form, question)


def _question(fields: dict[str, Any], form: Form, model: str | None) -> LineQuestion:
    if form == "openai":
        return openai_format.read(fields, model=model)
    return own_format.read(fields)


def _fields(raw: RawLine) -> dict[str, Any]:
    if raw.is_too_long:
        raise Unreadable(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        fields = orjson.loads(raw.text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Unreadable(f"a JSON object is expected, not {type(fields).__name__}")
    return fields


def _form(fields: dict[str, Any]) -> Form:
    return "openai" if OPENAI_FIELDS & fields.keys() else "own"


def _id(fields: Any, form: Form) -> str | int | None:
    """The id of a line that is refused, as far as it has one."""
    found = fields.get("custom_id" if form == "openai" else "id") if isinstance(fields, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
