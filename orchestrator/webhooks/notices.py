"""What an event of a run's history means for others: a notice for each thing that they may want to be told. Pure.

Runs of agents tell of nothing themselves: who begins a run waits for that one. What waits for a person in them is told
by the run that stands above all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.orchestrator.run.events import (
    ApprovalBelow,
    CallRecord,
    CallsBack,
    CallsSent,
    RunEvent,
    RunStarted,
    RunStopped,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.tally import handle_of_task
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.webhooks.records import Notice, WebhookEvent
from toolfleet.questions import Question

ENDS = {
    State.DONE: WebhookEvent.RUN_COMPLETED,
    State.FAILED: WebhookEvent.RUN_FAILED,
    State.CANCELLED: WebhookEvent.RUN_CANCELLED,
}


def notices_of(run: Run, event: RunStarted | RunEvent) -> Iterator[Notice]:
    """What this event has to be told of; `run` is what it leads to."""
    if run.parent_call_id is not None or isinstance(event, RunStarted):
        return
    match event:
        case CallsSent() if event.awaiting_approval:
            asked = set(event.awaiting_approval)
            for call in run.calls:
                if call.call_id in asked:
                    yield _approval(run.run_id, call.call_id, call.tool, call.digest, call.arguments)
        case ApprovalBelow() if event.approval is None:
            yield _approval(run.run_id, event.call_id, event.tool, event.digest, event.arguments)
        case CallsBack():
            yield from _settled(run, [*event.results, *event.fetched])
        case SlowResultDelivered() | RunStopped():
            yield from _settled(run, event.results)
    if run.state.is_terminal:
        yield _end(run)


def notice_of_question(question: Question, run_id: str) -> Notice:
    """What is told of a question; `run_id` is the run above all that its call belongs to."""
    data: dict[str, object] = {
        "run_id": run_id,
        "call_id": question.call_id,
        "question_id": question.question_id,
        "tool": question.tool,
        "expires_unix_s": question.expires_unix_s,
    }
    content: dict[str, object] = {"message": question.message, "answer_schema": question.schema_}
    return Notice(WebhookEvent.QUESTION_ASKED, question.question_id, data, content)


def _end(run: Run) -> Notice:
    content: dict[str, object] = {"answer": run.answer, "reason": run.reason}
    return Notice(ENDS[run.state], run.run_id, {"run_id": run.run_id, "state": run.state.value}, content)


def _approval(run_id: str, call_id: str, tool: str, digest: str, arguments: str) -> Notice:
    data: dict[str, object] = {"run_id": run_id, "call_id": call_id, "tool": tool, "digest": digest}
    return Notice(WebhookEvent.APPROVAL_REQUESTED, call_id, data, {"arguments": arguments})


def _settled(run: Run, call_ids: Iterable[str]) -> Iterator[Notice]:
    """Those of these calls of which somebody had a handle, and which have a result now."""
    wanted = set(call_ids)
    for call in run.calls if wanted else ():
        if call.call_id in wanted and (handle := _handle_of(call)):
            result = call.late_result or call.result
            outcome = "returned" if isinstance(result, Returned) else getattr(result, "kind", "")
            data: dict[str, object] = {
                "run_id": run.run_id,
                "call_id": call.call_id,
                "handle": handle,
                "tool": call.tool,
                "outcome": str(outcome),
            }
            yield Notice(WebhookEvent.JOB_SETTLED, call.call_id, data, {"result": _said(result)})


def _handle_of(call: CallRecord) -> str:
    """The handle that was given out for a call which has its result; "" for any other."""
    return "" if call.is_slow_and_open or call.result is None else handle_of_task(call)


def _said(result: Returned | Failed | Submitted | None) -> str | None:
    match result:
        case Returned():
            return result.content
        case Failed():
            return result.message
        case _:
            return None
