"""How a run or a call may be asked for from Python: its options by name, and the event that they amount to.

What each may be is said by `run.terms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypedDict, cast

from pydantic import TypeAdapter

from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.limits import Limits
from toolfleet.orchestrator.run.shared_state import Strategy
from toolfleet.orchestrator.run.terms import AskedTerms, PriorityName, RunTerms, Slow
from toolfleet.orchestrator.run.transcript import repaired
from toolfleet.orchestrator.run.updates import RunUpdate
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec


class AskOptions(TypedDict, total=False):
    """How whatever is asked is to be run, by a run or by a method of an assistant; each may be left out."""

    slow: Slow
    """Wait for slow calls ("wait", the default), or give the model a handle and go on ("handle")."""
    patience_s: float | None
    """How long calls may take before they count as slow; None: what each tool says."""
    context: Mapping[str, Any] | None
    """Your own JSON, handed to the tools and hidden from the model."""
    state: Mapping[str, Any] | None
    """What the tools share to begin with: each sees it as `ctx.state` and may return updates, `Returned(state=…)`."""
    merging: Mapping[str, Strategy] | None
    """How updates of a key are merged: "replace" (the default), "append" or "merge"."""
    interceptors: Sequence[str]
    """Names of the orchestrator's interceptors that this run wants, besides those for every run."""
    limits: Limits | None
    """What one answer may use up: calls, calls of one tool, tokens, cost."""
    max_turns: int | None
    """Model replies at most; None: as the settings say."""
    timeout_s: float | None
    """Seconds until the run fails and its calls expire."""
    turn_timeout_s: float | None
    """Seconds that the calls of one reply may take; slower ones are stopped as timed out, the others are kept."""
    calls_at_a_time: int | None
    """How many calls of a reply are made together at most, in its order; 1: one after the other; None: all. None of
    them counts as slow then."""
    compensate: bool
    """When a call fails, take back what the others of its reply have done, where their tools know how. The calls of a
    reply are then waited for together: none of them counts as slow."""
    keep_s: float | None
    """How long the run's record is kept once it has ended; None: as the settings say."""
    model_options: Mapping[str, Any]
    """What the model is asked with besides the conversation: temperature, … in its provider's words."""
    priority: Priority | PriorityName
    """Whether its calls go before or behind those of others that wait."""
    webhook: str | None
    """The id or the URL of one of the tenant's endpoints (`toolfleet webhooks add`), which is told of this run."""
    tenant: str
    """Whose run it is, for those that serve several parties; "", the default, for whoever has no name. Its tools read
    it as `ctx.tenant`: pass what you have checked."""
    subject: str
    """Who asks, within the tenant; its tools read it as `ctx.subject`."""


class RunOptions(AskOptions, total=False):
    """How a run is to be run; every one of them may be left out, and None stands for one that is.

    These are the fields of `RunTerms`, as type checkers are to see them, and those of BESIDE_TERMS.
    """

    tools: Sequence[str] | None
    """Names to offer; None, the default, for all that live workers serve."""
    output_type: Any
    """The type of the answer, a pydantic model for example: see `Run.answer_as`. The model may try twice."""
    output_schema: Mapping[str, Any] | None
    """The same as a JSON Schema, where there is no type."""
    client_tools: Sequence[ToolSpec]
    """Tools of your own that no worker serves: a reply that asks for them ends the run; see `Run.handed_over`."""
    run_id: str | None
    """An id of your own, for a run that must not be begun twice: the same id again joins the run that is there."""
    asked_as: Mapping[str, Any]
    """What you were asked with yourself, to be read again as `Run.asked_as`; nothing is made of it."""
    by: str
    """Who begins it, for its history: whom a door knows its caller as."""


BESIDE_TERMS: Final = ("output_type", "run_id", "asked_as", "by")
"""Options that are no terms: a type is stored as its schema, the others beside the terms."""


class BatchOptions(TypedDict, total=False):
    """How the calls of one assistant message are to be made; every one of them may be left out."""

    tools: Sequence[str] | None
    """Names that may be called; None, the default, for all that live workers serve."""
    context: Mapping[str, Any] | None
    """Your own JSON, handed to the tools."""
    timeout_s: float | None
    """Seconds until they expire; None: as each tool says."""
    priority: Priority
    """Before or behind those of others that wait."""
    compensate: bool
    """When a call fails, take back what the others have done, where their tools know how."""
    tenant: str
    """Whose calls they are; their tools read it as `ctx.tenant`."""
    subject: str
    """Who asks; their tools read it as `ctx.subject`."""
    approved: Collection[str]
    """The ids of calls that need approval and have it."""
    on_event: Callable[[RunUpdate], None] | None
    """Hears what happens. It must not block."""


def terms_of(options: RunOptions) -> RunTerms:
    """The terms of a run with these options. Raises InvalidOption."""
    asked = {name: value for name, value in options.items() if name not in BESIDE_TERMS}
    output_type = options.get("output_type")
    if output_type is not None and options.get("output_schema") is not None:
        raise InvalidOption("output_type and output_schema both say what the answer is: give one of them")
    if output_type is not None:
        asked["output_schema"] = TypeAdapter(output_type).json_schema()
    return RunTerms.of(asked)


def options_given(asked: AskedTerms) -> RunOptions:
    """What a door was asked for, as keywords: the options that were given, and no others."""
    return cast("RunOptions", asked.given())


def run_started(
    messages: tuple[Message, ...], options: RunOptions, *, run_id: str, model: str, default_max_turns: int
) -> RunStarted:
    """The first event of a run with these options. Raises InvalidOption."""
    terms, now = terms_of(options), time.time()
    return RunStarted(
        run_id=run_id,
        messages=repaired(messages),
        model=model,
        terms=terms if terms.max_turns is not None else terms.model_copy(update={"max_turns": default_max_turns}),
        deadline_unix_s=None if terms.timeout_s is None else now + terms.timeout_s,
        started_unix_s=now,
        asked_as=dict(options.get("asked_as") or {}),
        by=options.get("by") or "",
    )


def conversation(question: str | Sequence[Message]) -> tuple[Message, ...]:
    """A question, or a conversation that ends with one, as messages."""
    return (UserMessage(content=question),) if isinstance(question, str) else tuple(question)
