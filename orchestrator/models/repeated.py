"""Events that repeat the one before but for a text: of those that a model's words come in, hundreds in a reply. Pure.

What stands around the text says the same each time, so it is compared and not parsed. That it is just this text which
may differ is not guessed: the event is read once more with another text in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import orjson

from toolfleet.orchestrator.errors import ModelReplyInvalid

RecordT = TypeVar("RecordT")

AT_ONCE: Final = 64
"""So many texts are parsed together, for less than half of what they cost one by one. Whoever sends something else now
and then has these looked at twice, and no more of them."""

TRIES: Final = 3
"""After so many events in a row that were no pattern for the next one, none is looked for: some servers send something
new with each."""


class RepeatedText(Generic[RecordT]):
    """The texts of one stream's events, where nothing else is new."""

    __slots__ = ("_only_text_of", "_pattern", "_read", "_tries_left")

    def __init__(self, read: Callable[[bytes], RecordT], only_text_of: Callable[[RecordT], str | None]) -> None:
        """`only_text_of` returns the text of a record that says the same when it comes again, but for this text."""
        self._read = read
        self._only_text_of = only_text_of
        self._pattern: tuple[bytes, bytes] | None = None
        """What stands before the text, and behind it."""
        self._tries_left = TRIES

    def text_in(self, data: bytes) -> str | None:
        """Return the text of an event that is the last one noted but for it; None for any other, which is to be read.

        Such an event means what that one meant, with this text.
        """
        if self._pattern is None:
            return None
        before, after = self._pattern
        if not (data.startswith(before) and data.endswith(after)):
            return None
        try:
            text = orjson.loads(data[len(before) : -len(after)])
        except orjson.JSONDecodeError:  # no text, or half a character in it
            return None
        if type(text) is not str:
            return None
        self._tries_left = TRIES
        return text

    def texts_in(self, events: Sequence[bytes]) -> list[str]:
        """Return the texts of the first of these events, up to one that is to be read. Not for more than AT_ONCE."""
        if self._pattern is None:
            return []
        before, after = self._pattern
        begin, end = len(before), -len(after)
        cut: list[bytes] = []
        for data in events:
            if not (data.startswith(before) and data.endswith(after)):
                break
            cut.append(data[begin:end])
        texts = _parsed_together(cut)
        if texts is None:
            return self._texts_one_by_one(events)
        if texts:
            self._tries_left = TRIES
        return texts

    def _texts_one_by_one(self, events: Sequence[bytes]) -> list[str]:
        texts: list[str] = []
        for data in events:
            if (text := self.text_in(data)) is None:
                break
            texts.append(text)
        return texts

    def note(self, data: bytes, record: RecordT) -> None:
        """Take an event that was read as the pattern of those to come, if it can be one."""
        self._pattern = None
        if self._tries_left and (text := self._only_text_of(record)):
            self._look_around(text, data)

    def _look_around(self, text: str, data: bytes) -> None:
        try:
            before, is_as_it_is, after = data.partition(orjson.dumps(text))
        except orjson.JSONEncodeError:  # half a character
            return
        if is_as_it_is:
            self._tries_left -= 1
            self._pattern = (before, after) if self._is_around_text(before, after) else None

    def _is_around_text(self, before: bytes, after: bytes) -> bool:
        try:
            texts = [self._only_text_of(self._read(before + another + after)) for another in (b'"?"', b'"!"')]
        except ModelReplyInvalid:
            return False
        return texts == ["?", "!"]


def _parsed_together(cut: Sequence[bytes]) -> list[str] | None:
    """Return the texts that were cut out of events, where they stand in JSON; None where any of these is no text."""
    try:
        # None goes on in the next one: it would have a line feed in it, which no text in JSON has.
        texts: list[object] = orjson.loads(b"[" + b",\n".join(cut) + b"]")
    except orjson.JSONDecodeError:
        return None
    known = [text for text in texts if type(text) is str]
    return known if len(known) == len(texts) == len(cut) else None
