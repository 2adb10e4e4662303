"""Server-sent events from bytes, as the WHATWG's standard reads them, for whoever wants their data alone. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation: a line ends with LF, CR or
both; an empty line ends an event; the data of several lines is one text. An event's name, id and retry are passed over,
because what models send says in its data what it is.
"""

from __future__ import annotations

from typing import Final

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FIELD: Final = b"data:"
_FIELD_AND_BLANK: Final = b"data: "
_END: Final = b"\n\n"
"""What ends an event, once each end of line is a line feed."""


class EventStream:
    """One stream of events, whose bytes may be cut anywhere. An event that the stream ends in the midst of is none."""

    __slots__ = ("_after_return", "_begun", "_data", "_is_at_start")

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """The pieces of a line that has not ended."""
        self._data: list[bytes] = []
        """The lines of data of an event that has not ended."""
        self._after_return = False
        """Whether the last byte was CR, so that a LF would belong to the same end of line."""
        self._is_at_start = True

    def add(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that the piece brings to its end. It is text in UTF-8, unless it is broken."""
        text = self._with_line_feeds(piece)
        end = text.rfind(_END) + len(_END)
        if end < len(_END) or self._data:
            return self._add_lines(text)
        events = _one_line_each(b"".join([*self._begun, text[:end]]))
        if events is None:
            return self._add_lines(text)
        self._begun.clear()
        self._is_at_start = False
        return events + self._add_lines(text[end:])

    def _add_lines(self, text: bytes) -> list[bytes]:
        first, *others = text.split(b"\n")
        self._begun.append(first)
        if not others:
            return []
        ended = self._line_begun()
        self._begun.append(others.pop())
        return self._events_of([ended, *others])

    def _with_line_feeds(self, piece: bytes) -> bytes:
        """Return the piece with LF for each end of line, whichever it is."""
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        if b"\r" not in piece:
            return piece
        self._after_return = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _line_begun(self) -> bytes:
        line = b"".join(self._begun)
        self._begun.clear()
        if self._is_at_start:
            self._is_at_start = False
            return line.removeprefix(BYTE_ORDER_MARK)
        return line

    def _events_of(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(_FIELD_AND_BLANK):
                data.append(line[6:])
            elif not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(_FIELD):
                data.append(line[5:])
            elif line == b"data":
                data.append(b"")
        return events


def _one_line_each(text: bytes) -> list[bytes] | None:
    """Return the data of whole events that are a line of data each, as nearly all are; None where any is not."""
    if not text.startswith(_FIELD_AND_BLANK):
        return None
    events = text[len(_FIELD_AND_BLANK) : -len(_END)].split(_END + _FIELD_AND_BLANK)
    return events if text.count(b"\n") == len(_END) * len(events) else None
