"""JSON text that is almost right -> the JSON text that was meant, or None.

Recovers what is all there and only written badly; what was cut off or never written is not made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

MAX_REPAIR_CHARS: Final = 262_144
"""Repair runs on the loop that serves all other calls: at this length it may take a fifth of a second."""

MAX_GUESS_CHARS: Final = 4096
"""json-repair is quadratic on some texts; longer ones are completed in linear time, or not at all."""

MAX_PARENTHESES: Final = 64
"""json-repair takes them for brackets, and is slowest where they nest."""

MAX_ENCODINGS: Final = 3
"""How often JSON may be wrapped in a JSON string. More is not a slip but a game."""

_MEMBER: Final = re.compile(r"""\s*(?:"(?:[^"\\]++|\\.)*+"|'[^'\\]*+'|[A-Za-z_]\w*+)\s*:(?!//)""", re.DOTALL)
"""How an object begins whose opening brace is missing."""

_TOKEN: Final = re.compile(r""""(?:[^"\\]++|\\.)*+"|[^"\[\]{},]++|.""", re.DOTALL)
_CLOSER: Final = {"{": "}", "[": "]"}
# Control characters inside strings are the most frequent slip, and no guess is needed to read them.
_DECODER: Final = json.JSONDecoder(strict=False)


def recover(text: str) -> str | None:
    """Return the one JSON object that `text` contains, as strict JSON, or None when there is none or more than one.

    Handles text around the object, doubly encoded JSON, missing closing brackets, trailing commas, comments, bare or
    single quotes. A string that never ends is refused: it may be half of a file about to be written.
    """
    if len(text) > MAX_REPAIR_CHARS:
        return None
    try:
        return _recover(text)
    except (ValueError, RecursionError):
        return None


def decoded(text: str) -> Any:
    """Return the value of one strict JSON text, control characters in strings allowed. Raises ValueError."""
    return _DECODER.decode(text)


def _recover(text: str) -> str | None:
    for _ in range(MAX_ENCODINGS):
        match _decoded_or_none(text):
            case dict() as arguments:
                return json.dumps(arguments)
            case str() as inner if inner.strip():
                text = inner.strip()
            case None:
                break
            case _:
                return None
    if _MEMBER.match(text) and text.rstrip().endswith("}"):
        text = "{" + text
        found = _decoded_or_none(text)
    else:
        found = _object_in(text)
    if found is None:
        found = _decoded_or_none(_completed(text))
    if found is None:
        found = _guess(text)
    return None if found is None else json.dumps(found)


def _decoded_or_none(text: str) -> Any:
    try:
        return decoded(text)
    except ValueError:
        return None


def _object_in(text: str) -> dict[str, Any] | None:
    """The object that stands in other text. Raises ValueError when different ones do: which was meant is a guess."""
    found: dict[str, Any] | None = None
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except ValueError:
            break
        # Some servers put an empty object before the real one when they join streamed pieces.
        if found and value and value != found:
            raise ValueError("several objects")
        found = found or value
        start = text.find("{", end)
    return found


def _completed(text: str) -> str:
    """The text from its first brace, with the closing brackets that it lacks and without commas that nothing follows.

    Raises ValueError where a string is cut off, or another object follows.
    """
    pieces: list[str] = []
    missing: list[str] = []
    for token in _TOKEN.finditer(text, text.index("{")):
        piece = token[0]
        if piece == '"':
            raise ValueError("a string without its end")
        if piece in _CLOSER:
            missing.append(_CLOSER[piece])
        elif piece in missing:  # a closing bracket: those inside it are closed first
            _drop_comma(pieces)
            while (closer := missing.pop()) != piece:
                pieces.append(closer)
        pieces.append(piece)
        if not missing:
            if "{" in text[token.end() :]:
                raise ValueError("several objects")
            break
    _drop_comma(pieces)
    return "".join(pieces + missing[::-1])


def _drop_comma(pieces: list[str]) -> None:
    while pieces and (pieces[-1].isspace() or pieces[-1] == ","):
        pieces.pop()


def _guess(text: str) -> dict[str, Any] | None:
    """Return what json-repair reads, unless it had to invent a value."""
    if len(text) > MAX_GUESS_CHARS or text.count("(") > MAX_PARENTHESES or text.endswith(":"):
        return None
    import json_repair  # noqa: PLC0415  # few texts need it, and every module with tools would load it

    value = json_repair.repair_json(text, return_objects=True, skip_json_loads=True)
    if not isinstance(value, dict):
        return None
    invented = '""' not in text and "''" not in text and "" in _leaves(value)
    return None if invented else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
