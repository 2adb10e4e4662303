"""How a run or a call may be asked for: its options, whether they can be meant, and the event that they amount to."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypedDict

from pydantic import TypeAdapter

from toolfleet.errors import CallerError
from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.run.events import RunStarted, Slow
from toolfleet.orchestrator.run.limits import Limits
from toolfleet.orchestrator.run.shared_state import Strategy
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
    compensate: bool
    """When a call fails, take back what the others of its reply have done, where their tools know how. The calls of a
    reply are then waited for together: none of them counts as slow."""
    keep_s: float | None
    """How long the run's record is kept once it has ended; None: as the settings say."""
    model_options: Mapping[str, Any]
    """What the model is asked with besides the conversation: temperature, … in its provider's words."""
    tenant: str
    """Whose run it is, for those that serve several parties; "", the default, for whoever has no name."""


class RunOptions(AskOptions, total=False):
    """How a run is to be run; every one of them may be left out."""

    tools: Sequence[str] | None
    """Names to offer; None, the default, for all that live workers serve."""
    output_type: Any
    """The type of the answer, a pydantic model for example: see `Run.answer_as`. The model may try twice."""
    client_tools: Sequence[ToolSpec]
    """Tools of your own that no worker serves: a reply that asks for them ends the run; see `Run.handed_over`."""
    run_id: str | None
    """An id of your own, for a run that must not be begun twice: the same id again joins the run that is there."""


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
    approved: Collection[str]
    """The ids of calls that need approval and have it."""
    on_event: Callable[[RunUpdate], None] | None
    """Hears what happens. It must not block."""


class InvalidOption(CallerError):
    """An option of a run or a call has a value that cannot be meant."""


def check_options(
    *,
    slow: str = "wait",
    patience_s: float | None = None,
    timeout_s: float | None = None,
    max_turns: int | None = None,
    keep_s: float | None = None,
    turn_timeout_s: float | None = None,
) -> None:
    """Raises InvalidOption for the first one that is wrong."""
    if slow not in {"wait", "handle"}:
        raise InvalidOption(f'slow is "wait" or "handle", not {slow!r}')
    if patience_s is not None and not patience_s >= 0:
        raise InvalidOption(f"patience_s must not be negative, but is {patience_s:g}; 0 makes every call a handle")
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidOption(f"timeout_s of {timeout_s:g} is a deadline in the past; leave it out for none")
    if turn_timeout_s is not None and not turn_timeout_s > 0:
        raise InvalidOption(f"turn_timeout_s must be more than 0, but is {turn_timeout_s:g}; leave it out for none")
    if timeout_s is not None and math.isinf(timeout_s):
        raise InvalidOption("timeout_s must be a number of seconds; leave it out for no deadline")
    if max_turns is not None and max_turns < 1:
        raise InvalidOption(f"max_turns must be at least 1, but is {max_turns}; leave it out for the setting's")
    if keep_s is not None and not keep_s > 0:
        raise InvalidOption(f"keep_s must be more than 0, but is {keep_s:g}; `delete` forgets a run at once")


def run_started(
    messages: tuple[Message, ...], options: RunOptions, *, model: str, default_max_turns: int
) -> RunStarted:
    """The first event of a run with these options. Raises InvalidOption."""
    timeout_s, now = options.get("timeout_s"), time.time()
    check_options(
        slow=options.get("slow", "wait"),
        patience_s=options.get("patience_s"),
        timeout_s=timeout_s,
        max_turns=options.get("max_turns"),
        keep_s=options.get("keep_s"),
        turn_timeout_s=options.get("turn_timeout_s"),
    )
    tools, output_type = options.get("tools"), options.get("output_type")
    return RunStarted(
        run_id=options.get("run_id") or secrets.token_hex(8),
        messages=repaired(messages),
        model=model,
        tools=None if tools is None else tuple(tools),
        slow=options.get("slow", "wait"),
        patience_s=options.get("patience_s"),
        context=dict(options.get("context") or {}),
        max_turns=options.get("max_turns") or default_max_turns,
        limits=options.get("limits") or Limits(),
        turn_timeout_s=options.get("turn_timeout_s"),
        compensate=options.get("compensate", False),
        values=dict(options.get("state") or {}),
        merging=dict(options.get("merging") or {}),
        interceptors=tuple(options.get("interceptors", ())),
        output_schema=None if output_type is None else TypeAdapter(output_type).json_schema(),
        deadline_unix_s=None if timeout_s is None else now + timeout_s,
        keep_s=options.get("keep_s"),
        client_tools=tuple(options.get("client_tools", ())),
        model_options=dict(options.get("model_options", {})),
        tenant=options.get("tenant", ""),
        started_unix_s=now,
    )


def conversation(question: str | Sequence[Message]) -> tuple[Message, ...]:
    """A question, or a conversation that ends with one, as messages."""
    return (UserMessage(content=question),) if isinstance(question, str) else tuple(question)
