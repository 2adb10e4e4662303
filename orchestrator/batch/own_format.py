"""Toolfleet's own lines: `{"id": …, "question": …}` in; id, state, answer or reason, and the figures of the run out.

Pure. A field that is not known is refused: it is most likely a misspelt one.
"""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import StrictInt, StrictStr, ValidationError

from toolfleet.calls import Failed
from toolfleet.messages import Message, Usage, UserMessage
from toolfleet.orchestrator.batch.records import (
    LineFigures,
    LineQuestion,
    RefusedLine,
    Unreadable,
    complaint,
    count_in,
)
from toolfleet.orchestrator.options import options_given
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.run.value import Run


class OwnLine(AskedTerms):
    """A line as it is written: a question and any option of a run. What is left out is as the command says."""

    id: StrictStr | StrictInt
    question: str | None = None
    messages: tuple[Message, ...] | None = None


def read(fields: dict[str, Any]) -> LineQuestion:
    """What the line asks. Raises Unreadable."""
    if "id" not in fields:
        raise Unreadable('no "id"')
    try:
        line = OwnLine.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise Unreadable(complaint(error, OwnLine)) from None
    if (line.question is None) == (line.messages is None):
        raise Unreadable('either "question" or "messages" is expected')
    if not (line.question or line.messages):
        raise Unreadable("the question is empty")
    messages = line.messages or (UserMessage(content=line.question or ""),)
    return LineQuestion(line.id, messages, options_given(line))


def written(line: int, line_id: str | int, run: Run) -> bytes:
    """The output of a line whose run has ended."""
    return orjson.dumps(
        {
            "id": line_id,
            "line": line,
            "run_id": run.run_id,
            "state": run.state.value,
            "answer": run.answer if run.state is State.DONE else None,
            "incomplete": run.incomplete,
            "refusal": run.refusal,
            "reason": run.reason if run.state is not State.DONE else None,
            "turns": run.turn,
            "calls": len(run.calls),
            "failed_calls": sum(isinstance(call.late_result or call.result, Failed) for call in run.calls),
            "usage": run.usage.model_dump(),
        }
    )


def written_unbegun(line: int, line_id: str | int, run_id: str, reason: str) -> bytes:
    """The output of a line whose run could not begin."""
    return orjson.dumps({"id": line_id, "line": line, "run_id": run_id, "state": "failed", "reason": reason})


def written_refused(refused: RefusedLine) -> bytes:
    """The output of a line that cannot be asked; always the same for the same line."""
    return orjson.dumps({"id": refused.id, "line": refused.line, "state": "refused", "reason": refused.reason})


def is_ok(fields: dict[str, Any]) -> bool:
    """Whether a line of output has an answer."""
    return fields.get("state") == State.DONE.value


def figures_of(fields: dict[str, Any]) -> LineFigures:
    """What a line of output says of its run's cost."""
    usage = fields.get("usage")
    return LineFigures(
        count_in(fields, "calls"),
        count_in(fields, "failed_calls"),
        Usage(input_tokens=count_in(usage, "input_tokens"), output_tokens=count_in(usage, "output_tokens")),
    )


def run_id_of(fields: dict[str, Any]) -> str | None:
    """The run that a line of output tells of; None for a refused line. Raises Unreadable for anything else."""
    if fields.get("state") == "refused" and "reason" in fields:
        return None
    if isinstance(run_id := fields.get("run_id"), str) and "state" in fields:
        return run_id
    raise Unreadable("not a line of a batch's output")
