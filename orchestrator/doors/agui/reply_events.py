"""One reply of a model as events, while it is written and once it is whole: its thoughts first, then what it says.

Whatever came while it was written, the whole reply is told in the same events. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ag_ui.core import (
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

from toolfleet.orchestrator.doors.openai.responses.pieces import Cutter, pieces_of


class OpenText:
    """What is said, or thought, under one id: as far as it was told."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self._cutter = Cutter()
        self._told: list[str] = []
        self._is_begun = False
        self.is_ended = False

    def add(self, text: str) -> list[BaseEvent]:
        """Return the events of more of it."""
        return self._pieces(self._cutter.add(text))

    def end(self) -> list[BaseEvent]:
        """Return the events that end it, where nothing is known but what came."""
        return self._ended(self._pieces(self._cutter.end()))

    def whole(self, text: str) -> list[BaseEvent]:
        """Return the events that are still to be told, now that all of it is known."""
        return self._ended(self._pieces(pieces_of(text)[len(self._told) :]))

    def broken_off(self) -> list[BaseEvent]:
        """Return the events that close it without another word."""
        return self._ended([])

    def begins(self, text: str) -> bool:
        """Return whether what was told is how this text begins, and all of it where that is closed."""
        pieces = pieces_of(text)
        return pieces == self._told if self.is_ended else pieces[: len(self._told)] == self._told

    def _pieces(self, pieces: Sequence[str]) -> list[BaseEvent]:
        if not pieces:
            return []
        self._told += pieces
        begun = [] if self._is_begun else self._start()
        self._is_begun = True
        return [*begun, *map(self._piece, pieces)]

    def _ended(self, found: list[BaseEvent]) -> list[BaseEvent]:
        if not self._is_begun or self.is_ended:
            return found
        self.is_ended = True
        return [*found, *self._end()]

    def _start(self) -> list[BaseEvent]:
        return [TextMessageStartEvent(message_id=self.message_id, role="assistant")]

    def _piece(self, text: str) -> BaseEvent:
        return TextMessageContentEvent(message_id=self.message_id, delta=text)

    def _end(self) -> list[BaseEvent]:
        return [TextMessageEndEvent(message_id=self.message_id)]


class OpenThoughts(OpenText):
    """The same of thoughts, which have events of their own."""

    def _start(self) -> list[BaseEvent]:
        return [
            ReasoningStartEvent(message_id=self.message_id),
            ReasoningMessageStartEvent(message_id=self.message_id),
        ]

    def _piece(self, text: str) -> BaseEvent:
        return ReasoningMessageContentEvent(message_id=self.message_id, delta=text)

    def _end(self) -> list[BaseEvent]:
        return [ReasoningMessageEndEvent(message_id=self.message_id), ReasoningEndEvent(message_id=self.message_id)]


class OpenReply:
    """One reply: what it lets see of its thoughts, and what it says."""

    def __init__(self, message_id: str, thoughts_id: str) -> None:
        self.said = OpenText(message_id)
        self.thoughts = OpenThoughts(thoughts_id)

    def thought(self, text: str) -> list[BaseEvent]:
        """Return the events of more thoughts."""
        return self.thoughts.add(text)

    def spoke(self, text: str) -> list[BaseEvent]:
        """Return the events of more text; no thought follows it."""
        return [*self.thoughts.end(), *self.said.add(text)]

    def begins(self, thoughts: str, text: str) -> bool:
        """Return whether what was told is how this reply begins."""
        return self.thoughts.begins(thoughts) and self.said.begins(text)

    def whole(self, thoughts: str, text: str) -> list[BaseEvent]:
        """Return the events that are still to be told, now that all of it is known."""
        return [*self.thoughts.whole(thoughts), *self.said.whole(text)]

    def broken_off(self) -> list[BaseEvent]:
        """Return the events that close what is open."""
        return [*self.thoughts.broken_off(), *self.said.broken_off()]
