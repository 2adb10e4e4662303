"""Where a text is cut into the deltas of a stream. Pure.

A text is cut by itself alone, and not by how it came: so a text that is read from the store is streamed in the very
same deltas as it was while its model wrote it, and each of them has the same number.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 16
"""Characters of a word at most that are one piece: scripts without spaces are to be seen coming too."""

# ASCII only: what else counts as a space depends on the version of Python.
_PIECE: Final = re.compile(rf"\s*\S{{1,{LONGEST}}}|\s+", re.ASCII)


def pieces_of(text: str) -> list[str]:
    """Return a whole text in pieces: each a word, or the next part of a long one, with the space before it."""
    return _PIECE.findall(text)


class Cutter:
    """Cuts a text that is still being written: a piece is given once nothing that follows can change it."""

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> list[str]:
        """Take more of the text. Returns the pieces that are certain by now."""
        *certain, self._rest = pieces_of(self._rest + text) or [""]
        return certain

    def end(self) -> list[str]:
        """Take the end of the text. Returns the last piece, if there is one."""
        return pieces_of(self._rest)
