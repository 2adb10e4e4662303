"""What is pushed of a call while it goes on, beside its progress: that it asks somebody, and what it yields.

Told to who looks on, and kept nowhere: a push may be lost. Sealed for its call, as anybody may write to Redis.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

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


class Yields(Record):
    """A call has yielded some pieces, one behind the other. A gap between two numbers is what found no room."""

    type: Literal["yields"] = "yields"
    attempt: int
    tries: int = 1
    first: int
    """The number of the first of them, from 0 in each attempt."""
    count: int
    text: str = ""
    """The texts among them, joined; empty where pieces are something else."""
    values: list[Any] = Field(default_factory=list)
    """Pieces that are no texts, as JSON."""
    voids: bool = False
    """The call has begun anew: all that was yielded before is void."""


News = Progress | Asks | Yields
"""What may be told of a call that has not ended."""

_PUSHED: Final[TypeAdapter[Asks | Yields]] = TypeAdapter(Annotated[Asks | Yields, Field(discriminator="type")])


def close_news(seal: Seal, news: Asks | Yields, call_id: str) -> bytes:
    """Return news of a call as they are pushed."""
    return seal.close_kept(_PUSHED.dump_json(news, by_alias=True), _place(call_id))


def open_news(seal: Seal, sealed: bytes, call_id: str) -> Asks | Yields:
    """Return pushed news of a call. Raises Refused for what nobody of the fleet has told."""
    try:
        return _PUSHED.validate_json(seal.open_kept(sealed, _place(call_id)), extra="ignore")
    except ValidationError:
        raise Refused("news of a kind that is not known here") from None


def _place(call_id: str) -> str:
    return f"news of {call_id}"
