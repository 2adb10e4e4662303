"""Finds the end of a JSON object while its text is still arriving.

Pure. An object's text cannot be continued into another valid one, so its closing brace is the earliest moment at which
a call's arguments are known to be complete, whatever the provider streams next.
"""

from __future__ import annotations

import json
import re
from typing import Final

EMPTY_OBJECT = "{}"
# The placeholder and the object. Text that closes more often is no object, and not worth parsing again and again.
MOST_CLOSINGS = 2
# The characters that decide anything. Most of a text is none of them, and is passed over without a look at each.
_DECIDES: Final = re.compile(r'["{\[}\]]')
_DECIDES_IN_STRING: Final = re.compile(r'["\\]')


class StreamedObject:
    """The text of a call's arguments, piece by piece. No character is looked at twice, however small the pieces."""

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
        closings = self._closings_in(piece)
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

    def _closings_in(self, piece: str) -> int:
        """Return how often the piece closes the outermost brace."""
        closings = at = 0
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_DECIDES_IN_STRING if self._in_string else _DECIDES).search(piece, at)
            if found is None:
                break
            at = found.end()
            closings += self._closes(found[0])
        return closings

    def _closes(self, character: str) -> bool:
        """Take a character that decides something; True if it closes the outermost brace."""
        if character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = not self._in_string
        elif character in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            return self._depth == 0
        return False


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # what nests too deep to be read is complete when the reply is
        return False
