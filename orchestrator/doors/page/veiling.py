"""What a key without the scope `payloads` is shown of runs and calls: the same records, without what they hold. Pure.

Done to the records, before any template sees them: none can forget it.
"""

from __future__ import annotations

from toolfleet.call_log import AttemptLog, CallLog
from toolfleet.calls import Failed, Progress, Returned, Submitted
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.doors.http.hiding import veiled
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.overview import RunOverview
from toolfleet.orchestrator.status.questions import AwaitedAnswer
from toolfleet.orchestrator.store.run_store import Head


def veiled_overview(seen: RunOverview) -> RunOverview:
    """Return a run and its calls without what they hold."""
    return RunOverview(
        run=veiled_run(seen.run),
        calls=tuple(veiled_call(call) for call in seen.calls),
        owner=seen.owner,
        changed_unix_s=seen.changed_unix_s,
        set_aside=seen.set_aside,
    )


def veiled_run(run: Run) -> Run:
    """Return a run likewise."""
    return run.model_copy(
        update={
            "messages": tuple(_message(message) for message in run.messages),
            "unheard": tuple(_message(message) for message in run.unheard),
            "calls": tuple(call.model_copy(update={"arguments": veiled(call.arguments)}) for call in run.calls),
            "answer": veiled(run.answer),
            "reason": veiled(run.reason),
            "refusal": veiled(run.refusal),
        }
    )


def veiled_call(call: CallStanding) -> CallStanding:
    """Return a call likewise."""
    return call.model_copy(
        update={
            "arguments": veiled(call.arguments),
            "result": _result(call.result),
            "progress": _progress(call.progress),
        }
    )


def veiled_log(log: CallLog) -> CallLog:
    """Return what its tool has logged likewise."""
    return log.model_copy(update={"attempts": tuple(_attempt(each) for each in log.attempts)})


def _attempt(attempt: AttemptLog) -> AttemptLog:
    lines = (
        line.model_copy(update={"text": veiled(line.text), "logger": veiled(line.logger)}) for line in attempt.lines
    )
    return attempt.model_copy(update={"lines": tuple(lines)})


def veiled_question(asked: AwaitedAnswer) -> AwaitedAnswer:
    """Return what a tool asks likewise."""
    hidden = {name: veiled(getattr(asked, name)) for name in ("message", "title")}
    return asked.model_copy(update={**hidden, "answer_schema": {}})


def veiled_head(head: Head) -> Head:
    """Return what a list says of a run likewise."""
    return head._replace(title=veiled(head.title))


def _message(message: Message) -> Message:
    update: dict[str, object] = {"content": veiled(message.content)}
    if isinstance(message, AssistantMessage):
        update["tool_calls"] = tuple(
            asked.model_copy(update={"arguments": veiled(asked.arguments)}) for asked in message.tool_calls
        )
        update["thoughts"], update["refusal"] = veiled(message.thoughts), veiled(message.refusal)
    return message.model_copy(update=update)


def _result(result: Returned | Failed | Submitted | None) -> Returned | Failed | Submitted | None:
    match result:
        case Returned():
            return result.model_copy(update={"content": veiled(result.content), "media": ()})
        case Failed() | Submitted():
            return result.model_copy(update={"message": veiled(result.message)})
        case None:
            return None


def _progress(progress: Progress | None) -> Progress | None:
    return None if progress is None else progress.model_copy(update={"message": veiled(progress.message)})
