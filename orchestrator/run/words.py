"""What a model reads of calls that ended without their tools, in words of the user's own. Pure.

A run has the words of the orchestrator that began it, or of the first that took it over and has some; they stand in its
history. So whoever goes on with it, and whoever replays it, makes the same messages of the same results. The results
themselves stay as they are: people read there what has happened.
"""

from __future__ import annotations

import string
from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator

from toolfleet.calls import Failed, FailureKind, Record

MOST_CHARS: Final = 4000

PLACEHOLDERS: Final = ("tool", "message")
"""What each of the texts may hold in braces."""

REASON: Final = "reason"
"""What that of a denied call may hold besides."""

OwnWords = Annotated[str, Field(max_length=MOST_CHARS, exclude_if=lambda text: not text)]


class Words(Record):
    """What the model reads of a call, by what became of it; "" for Toolfleet's own words.

    `{tool}` stands for the tool's name and `{message}` for what would be read otherwise; braces are doubled.
    """

    cancelled: OwnWords = ""
    """It was cancelled, by a person or another program, before it began or while it ran."""
    interrupted: OwnWords = ""
    """The user has said something instead (`say(…, interrupt=True)`): it was cancelled, or never sent."""
    not_called: OwnWords = ""
    """Its run ended before it was sent."""
    left_open: OwnWords = ""
    """Its run ended while it may have been under way: its effect may or may not have happened."""
    denied: OwnWords = ""
    """A person, a permission or an interceptor decided against it; `{reason}` is what the person gave."""
    expired: OwnWords = ""
    """Its deadline passed before it began, or before its result came."""
    timed_out: OwnWords = ""
    """It took longer than its limit allowed."""
    crashed: OwnWords = ""
    """Its worker was lost in each attempt."""
    in_doubt: OwnWords = ""
    """It was interrupted, and not run again: its effect may or may not have happened."""
    unknown_tool: OwnWords = ""
    """No such tool was offered, or nobody serves it."""

    @field_validator("*", mode="after")
    @classmethod
    def _has_no_other_placeholders(cls, text: str, info: ValidationInfo) -> str:
        legal = (*PLACEHOLDERS, REASON) if info.field_name == FailureKind.DENIED else PLACEHOLDERS
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"is no text with placeholders: {error} (braces are doubled)") from None
        for _, name, form, conversion in parts:
            if name is not None and (name not in legal or form or conversion):
                asked = f"{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}"
                raise ValueError(f"has {{{asked}}}: its placeholders are {', '.join(f'{{{each}}}' for each in legal)}")
        return text

    def of(self, kind: str, tool: str, result: Failed, reason: str = "") -> str:
        """What the model reads of a failed call of which that became, in the fields' names."""
        text = getattr(self, kind, "") if kind in type(self).model_fields else ""
        return str(text).format(tool=tool, message=result.message, reason=reason) if text else result.message
