"""What a run had come to after one of its turns: what another one can begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.errors import RunNotOpen
from toolfleet.orchestrator.run.events import ModelReplied, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.history import Entry, after


def after_turn(entries: Sequence[Entry], turn: int) -> tuple[Message, ...]:
    """Return the messages of a run as its model would have been asked with next, after this many replies of it.

    Raises RunNotOpen where it has not come so far, or where a call of that turn has no answer.
    """
    run, replies = Run.start(cast("RunStarted", entries[0].event)), 0
    for entry in entries[1:]:
        replies += isinstance(entry.event, ModelReplied)
        if replies > turn:
            break
        run = after(run, entry)
    if replies < turn:
        raise RunNotOpen(f"run {run.run_id} has had {replies} replies of its model, not {turn}")
    asked = run.messages[-1] if run.messages else None
    if isinstance(asked, AssistantMessage) and asked.tool_calls:
        raise RunNotOpen(f"not every call of turn {turn} of run {run.run_id} has an answer yet")
    return run.messages
