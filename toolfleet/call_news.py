"""What is pushed of a call while it goes on, beside its progress: that it asks somebody, and what it yields.

Told to who looks on, and kept nowhere: a push may be lost. Sealed for its call, as anybody may write to Redis.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from toolfleet.calls import Progress, Record
from toolfleet.errors import Refused
from toolfleet.questions import Question
from toolfleet.wire import Seal

FIELD: Final = "n"
"""The field of a reply stream's entry that has it."""


class Asks(Record):
    """A call asks a person."""

    type: Literal["asks"] = "asks"
    question: Question


News = Progress | Asks
"""What may be told of a call that has not ended."""

_PUSHED: Final = TypeAdapter[Asks](Asks)


def close_news(seal: Seal, news: Asks, call_id: str) -> bytes:
    """Return news of a call as they are pushed."""
    return seal.close_kept(_PUSHED.dump_json(news, by_alias=True), _place(call_id))


def open_news(seal: Seal, sealed: bytes, call_id: str) -> Asks:
    """Return pushed news of a call. Raises Refused for what nobody of the fleet has told."""
    try:
        return _PUSHED.validate_json(seal.open_kept(sealed, _place(call_id)), extra="ignore")
    except ValidationError:
        raise Refused("news of a kind that is not known here") from None


def _place(call_id: str) -> str:
    return f"news of {call_id}"
