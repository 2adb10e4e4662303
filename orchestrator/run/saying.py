"""What a person says to a run while it goes on: what of it may be said, and what was said before. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import orjson

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import InvalidOption, RunNotOpen

if TYPE_CHECKING:
    from toolfleet.orchestrator.run.value import Run

MOST_UNHEARD: Final = 100
"""How many messages may wait for a model: who says more speaks faster than any model listens."""


def digest_of(messages: Sequence[UserMessage]) -> str:
    """What tells whether two senders have said the same."""
    said = [message.model_dump(mode="json") for message in messages]
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def was_said(run: Run, key: str, messages: Sequence[UserMessage]) -> bool:
    """Whether this was said under this key before. Raises InvalidOption where something else was."""
    before = run.said_before.get(key) if key else None
    if before is not None and before != digest_of(messages):
        raise InvalidOption(f"idempotency_key {key!r} was used in run {run.run_id} for another message: choose another")
    return before is not None


def must_listen(run: Run) -> None:
    """Raises RunNotOpen, with what to do instead, for a run whose model would not hear what is said now."""
    if run.state.is_terminal:
        raise RunNotOpen(
            f"run {run.run_id} has ended already, it is {run.state}: let it go on with a follow-up (resume)"
        )
    if run.terms.client_tools:
        raise RunNotOpen(
            f"run {run.run_id} ends with calls that its caller answers: say it with those answers, in the next request"
        )
    if len(run.unheard) >= MOST_UNHEARD:
        raise RunNotOpen(
            f"run {run.run_id} has {len(run.unheard)} messages that its model has not read yet: say more once it has"
        )
