"""Why an answer is not all that its model had to say, and how that is told. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from toolfleet.messages import AssistantMessage


class Incomplete(StrEnum):
    """What an answer lacks. The run that has it is done: nothing better is known."""

    LENGTH = "length"
    """The model's output limit cut it off."""
    CONTENT_FILTER = "content_filter"
    """Its provider withheld it, or the rest of it."""
    REFUSAL = "refusal"
    """The model would not answer, or not go on."""
    PAUSED = "paused"
    """The provider paused its own tools too often."""
    INTERRUPTED = "interrupted"
    """The connection to the model broke before its end."""
    EMPTY = "empty"
    """The model ended its reply without a word and without a call."""

    @property
    def told(self) -> str:
        """The same as a sentence about the answer."""
        return _TOLD[self]


_TOLD = {
    Incomplete.LENGTH: "This answer was cut off by the output limit of its model.",
    Incomplete.CONTENT_FILTER: "This answer, or the rest of it, was withheld by its model's provider.",
    Incomplete.REFUSAL: "The model of this answer refused to give it.",
    Incomplete.PAUSED: "This answer is not whole: the tools of its model's provider were paused too often.",
    Incomplete.INTERRUPTED: "This answer was broken off when the connection to its model was lost.",
    Incomplete.EMPTY: "The model of this answer said nothing.",
}

NO_SECOND_TRY: Final = frozenset({Incomplete.LENGTH, Incomplete.CONTENT_FILTER, Incomplete.REFUSAL})
"""What is the model's or its provider's last word: asked again for the same, they would say the same."""

_REASONS = frozenset(each.value for each in Incomplete)


def lacking(message: AssistantMessage, finish_reason: str) -> Incomplete | None:
    """What a reply lacks that ended for this reason; None for a whole one. An unknown reason says nothing."""
    if message.refusal:
        return Incomplete.REFUSAL
    if finish_reason in _REASONS:
        return Incomplete(finish_reason)
    said_nothing = not message.tool_calls and not message.content.strip()
    return Incomplete.EMPTY if said_nothing else None
