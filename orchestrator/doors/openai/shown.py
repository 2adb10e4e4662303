"""The text of a streamed completion: what of it was shown, and whether that still stands when its model begins anew.

Nothing that was shown can be taken back. So a reply that is begun anew is compared with what was shown of it, and only
what goes beyond that is shown. Pure.
"""

from __future__ import annotations

from typing import Final

BETWEEN_TURNS: Final = "\n\n"


class Changed(Exception):
    """What was shown is not how the text goes by now."""


class Shown:
    """The text of one completion, as far as its client has it. Takes it turn by turn."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reply_at = 0
        self._is_new_turn = False
        self._void = ""
        """What was shown of a reply that was begun anew, and what of it has come again."""
        self._come = 0

    def begin_reply(self, attempt: int) -> None:
        """Note that the next reply begins or, with an `attempt`, that this one begins anew. Raises Changed."""
        if not attempt:
            self._must_have_come()
            self._is_new_turn = True
        elif not self._is_new_turn:
            self._void, self._come = "".join(self._text[self._reply_at :]), 0

    def add(self, text: str) -> str:
        """Take more of the reply. Returns what of it is to be shown. Raises Changed."""
        text = self._beyond_void(text)
        if not text:
            return ""
        between = BETWEEN_TURNS if self._text and self._is_new_turn else ""
        if self._is_new_turn:
            self._is_new_turn, self._reply_at = False, len(self._text) + bool(between)
        self._text += [between, text] if between else [text]
        return between + text

    def rest(self, content: str) -> str:
        """Return what is still to be shown, now that all of the content is known. Raises Changed."""
        shown = "".join(self._text)
        if not content.startswith(shown):
            raise Changed
        return content[len(shown) :]

    def _beyond_void(self, text: str) -> str:
        come = min(len(text), len(self._void) - self._come)
        if not self._void.startswith(text[:come], self._come):
            raise Changed
        self._come += come
        return text[come:]

    def _must_have_come(self) -> None:
        if self._come < len(self._void):
            raise Changed
