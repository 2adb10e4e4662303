"""Finds the end of a JSON object while its text is still arriving.

Pure. An object's text cannot be continued into another valid one, so its closing brace is the earliest moment at which
a call's arguments are known to be complete, whatever the provider streams next.
"""

from __future__ import annotations

import json

EMPTY_OBJECT = "{}"
# The placeholder and the object. Text that closes more often is no object, and not worth parsing again and again.
MOST_CLOSINGS = 2


class StreamedObject:
    """The text of a call's arguments, piece by piece. Each character is looked at once, however small the pieces."""

    __slots__ = ("_closings", "_depth", "_escaped", "_in_string", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._closings = 0

    def add(self, piece: str) -> bool:
        """Append; True when the text has just become one complete object.

        An empty object does not count yet: some gateways send `{}` as a placeholder before the real arguments.
        """
        self._pieces.append(piece)
        closings = sum(self._closes(character) for character in piece)
        self._closings += closings
        if not closings or self._closings > MOST_CLOSINGS:
            return False
        text = self.text
        return text != EMPTY_OBJECT and _is_object(text)

    @property
    def closed_once(self) -> bool:
        """Whether the text holds something whole in braces, be it the placeholder."""
        return self._closings > 0

    @property
    def text(self) -> str:
        """All text so far, without a gateway's placeholder."""
        text = "".join(self._pieces)
        return text.removeprefix(EMPTY_OBJECT) if text.startswith(EMPTY_OBJECT + "{") else text

    def _closes(self, character: str) -> bool:
        """Take one character; True if it closes the outermost brace."""
        if self._in_string:
            self._take_in_string(character)
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            return self._depth == 0
        return False

    def _take_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # what nests too deep to be read is complete when the reply is
        return False
