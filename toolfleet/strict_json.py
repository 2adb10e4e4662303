r"""JSON and text from outside, made such that everybody takes them: by the letter of RFC 8259, and valid UTF-8.

JSON lets a half of a character pass (`"\ud83d"`, RFC 8259, section 8.2), and Python keeps it in a string; no strict
parser, no database and no provider takes it. Knows nothing of calls.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Final, NoReturn

import orjson

MAX_DEPTH: Final = 64
"""Deeper than any schema a model can follow, and far from where parsers and JSON Schema checks run out of stack."""

MAX_READ_DEPTH: Final = 100
"""The parsers of providers stop at 128 levels, some of which are the request's own."""

# Possessive, and the end of the text closes a string: linear on every input.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^"\[\]{}]++|.', re.DOTALL)


def encodable(text: str) -> str:
    """Return the text with two halves of a character joined, and U+FFFD for one without its other half."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encodable_value(value: Any) -> Any:
    """Return a JSON value with each text in it `encodable`, names included. Raises RecursionError for a deep one."""
    match value:
        case str():
            return encodable(value)
        case dict():
            return {encodable_value(name): encodable_value(item) for name, item in value.items()}
        case list() | tuple():
            return [encodable_value(item) for item in value]
        case _:
            return value


def written(value: Any) -> str:
    """Return a JSON value as text, with integers of any size and each text in it `encodable`.

    Raises TypeError for what is no JSON value.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # beyond 64 bits, half a character, very deep; or no JSON value
        return json.dumps(encodable_value(value), separators=(",", ":"))


class PiecedText:
    """Text that comes in pieces, which may be cut in the middle of a character."""

    __slots__ = ("_decoder", "_waits")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
        self._waits = False

    def add(self, piece: str) -> str:
        """Return what is whole by now; half a character waits for its other half."""
        if not self._waits and piece.isascii():
            return piece
        whole = self._decoder.decode(piece.encode("utf-16-le", "surrogatepass"))
        self._waits = bool(self._decoder.getstate()[0])
        return whole

    def end(self) -> str:
        """Return what stands for a half whose other half never came; mostly nothing."""
        self._waits = False
        return self._decoder.decode(b"", final=True)


def read_json(text: str) -> Any:
    """Return the value of a JSON text, every string in it encodable.

    Raises ValueError for what is not JSON by the letter (NaN, a name twice, a number beyond all floats) or nests deeper
    than MAX_READ_DEPTH.
    """
    if is_deeper(text, MAX_READ_DEPTH):
        raise ValueError(f"nested more than {MAX_READ_DEPTH} levels deep")
    value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_distinct)
    # Only an escape can bring half a character into text that was encodable.
    return encodable_value(value) if "\\u" in text or not text.isascii() else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"{digits} is larger than any number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return members


# --- depth -----------------------------------------------------------------------------------------------------------


def outside_strings(text: str) -> str:
    """Return a JSON text without its strings: brackets in it are brackets."""
    return _STRING.sub("", text)


def depth(structure: str) -> int:
    """Return how deep a text from `outside_strings` nests."""
    level = deepest = 0
    for bracket in re.finditer(r"[\[{}\]]", structure):
        level += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, level)
    return deepest


def is_deeper(text: str, levels: int) -> bool:
    """Whether a JSON text nests deeper than so many levels. Parses nothing, so that no text is too deep to ask."""
    return text.count("{") + text.count("[") > levels and depth(outside_strings(text)) > levels


def cut_to_depth(text: str, levels: int) -> str:
    """Return a JSON text with `null` for what nests deeper than so many levels."""
    kept: list[str] = []
    level = 0
    for token in _TOKEN.finditer(text):
        piece = token[0]
        opens, closes = piece in {"[", "{"}, piece in {"]", "}"}
        level += opens
        if level <= levels:
            kept.append(piece)
        elif opens and level == levels + 1:
            kept.append("null")
        level -= closes
    return "".join(kept)
