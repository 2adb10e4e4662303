"""One line for each event of a run's history, for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from toolfleet.calls import ToolResult
from toolfleet.messages import UserMessage, described
from toolfleet.orchestrator.doors.cli.wording import one_line, shortened
from toolfleet.orchestrator.run.events import (
    ApprovalBelow,
    ApprovalGiven,
    BudgetRanLow,
    CallCancelRequested,
    CallsBack,
    CallsHandedOver,
    CallsParked,
    CallsSent,
    CallsStreamed,
    MessagesHeard,
    MessagesSaid,
    ModelReplied,
    Noted,
    QuestionAnswered,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.status.call_state import result_state
from toolfleet.terminal import harmless

TEXT_CHARACTERS = 120


def narrated(event: RunStarted | RunEvent) -> str:
    """Return what an event says, in one line."""
    name = event.type.replace("_", " ")
    told = _told(event)
    return harmless(f"{name}: {told}" if told else name)


def _told(event: RunStarted | RunEvent) -> str:  # noqa: PLR0911, PLR0912, C901  # one line for each kind of event
    match event:
        case RunStarted():
            asked = [described(message) for message in event.messages if isinstance(message, UserMessage)]
            return f"{event.model}; {_line(asked[-1] if asked else '')}"
        case ModelReplied():
            called = Counter(call.name for call in event.message.tool_calls)
            calls = ", ".join(f"{count} {name}" if count > 1 else name for name, count in called.items())
            return "; ".join(filter(None, [f"calls {calls}" if calls else "", _line(described(event.message))]))
        case CallsStreamed():
            return f"while it is written: calls {', '.join(call.name for call in event.message.tool_calls)}"
        case CallsSent():
            sent = _ids(event.deadlines_unix_s)
            waiting = f"waiting for approval: {_ids(event.awaiting_approval)}" if event.awaiting_approval else ""
            return "; ".join(filter(None, [sent, waiting]))
        case CallsBack():
            fetched = f"fetched {_results(event.fetched)}" if event.fetched else ""
            return "; ".join(filter(None, [_results(event.results), fetched]))
        case CallsParked():
            return _ids(event.handles)
        case ApprovalGiven():
            decided = "approved" if event.approval.granted else f"denied: {event.approval.reason}"
            return f"{event.call_id} {decided}"
        case ApprovalBelow(call_id=call_id, tool=tool, approval=approval):
            waits = f"{call_id} of {tool} waits for a person"
            return waits if approval is None else f"{call_id} {'approved' if approval.granted else 'denied'}"
        case CallCancelRequested():
            return f"{event.call_id} by {event.by}"
        case MessagesSaid():
            said = " ".join(described(message) for message in event.messages)
            return _line(f"{'interrupting: ' if event.interrupt else ''}{said}")
        case MessagesHeard():
            return "by the model, next"
        case QuestionAnswered(answered=said):
            what = said.answer if said.answer is not None else f"declined: {said.reason}"
            return _line(f"{event.call_id}: {said.question} {what} (by {said.by or 'nobody known'})")
        case SlowResultDelivered():
            return _results(event.results)
        case RunAdopted():
            return event.orchestrator_id
        case BudgetRanLow():
            return ", ".join(f"{each.told} left of the {each.of}'s {each.limit:g}" for each in event.left)
        case Noted(name=name, blocks=blocks):
            return _line(f"{name}: {blocks}" if blocks else name)
        case RunResumed():
            return _line(" ".join(described(message) for message in event.messages))
        case CallsHandedOver():
            return "its caller answers the rest"
        case RunStopped():
            return f"{event.state}; {event.reason}"


def _ids(call_ids: Iterable[str]) -> str:
    return shortened(", ".join(call_ids), TEXT_CHARACTERS)


def _results(results: dict[str, ToolResult]) -> str:
    told = (f"{call_id} {result_state(result)}" for call_id, result in results.items())
    return shortened(", ".join(told), TEXT_CHARACTERS)


def _line(text: str) -> str:
    return one_line(text, TEXT_CHARACTERS)
