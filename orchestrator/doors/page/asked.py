"""A question that the tool of a call has asked a person, and what has come of it, as the page shows it."""

from __future__ import annotations

import time
from typing import NamedTuple, Self

from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.doors.page.veiling import veiled_question
from toolfleet.orchestrator.status.questions import Asked, AwaitedAnswer
from toolfleet.questions import Said


class AskedHere(NamedTuple):
    """A question of a call, and what has come of it."""

    awaited: AwaitedAnswer
    is_open: bool
    outcome: str
    """In words; "" while it waits."""

    @classmethod
    def of(cls, asked: Asked, *, is_over: bool, shows: bool) -> Self:
        """Return it as a key shows it."""
        awaited = AwaitedAnswer.of(asked.question)
        is_open = not is_over and asked.is_open(time.time())
        outcome = "" if is_open else _outcome(asked.said, shows=shows)
        return cls(awaited if shows else veiled_question(awaited), is_open, outcome)


def _outcome(said: Said | None, *, shows: bool) -> str:
    if said is None:
        return "nobody has answered"
    if said.expired:
        return "nobody has answered in time"
    who = said.by or "somebody"
    if said.declined:
        return f"{who} declined" + (f": {said.reason if shows else veiled(said.reason)}" if said.reason else "")
    return f"{who} answered {(said.answer or '') if shows else veiled(said.answer or '')}"
