"""How a run's end is told: finished, handed over to the front end, cancelled, or failed. Pure."""

from __future__ import annotations

from typing import Any

from ag_ui.core import BaseEvent, RunErrorEvent, RunFinishedEvent, TokenUsage
from ag_ui.core.events import RunFinishedCancelledOutcome, RunFinishedSuccessOutcome

from toolfleet.messages import Usage
from toolfleet.orchestrator.doors.openai.endings import problem_of_run
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run


def ending_of(run: Run, thread_id: str, run_id: str, before: Usage) -> BaseEvent:
    """Return the last event of a run that has ended; `before` is what it had used when this stream began."""
    usage = usage_of(run, before)
    if run.state is State.FAILED:
        problem = problem_of_run(run)
        return RunErrorEvent(message=problem.detail, code=problem.code, usage=usage, metadata=_ours(run))
    finished = RunFinishedEvent(thread_id=thread_id, run_id=run_id, usage=usage, metadata=_ours(run))
    if run.state is State.CANCELLED:
        return finished.model_copy(update={"outcome": RunFinishedCancelledOutcome()})
    pending = [handed_over_id(call) for call in run.handed_over]
    success = RunFinishedSuccessOutcome(pending_tool_call_ids=pending or None)
    return finished.model_copy(update={"outcome": success, "result": None if pending else run.answer})


def usage_of(run: Run, before: Usage) -> list[TokenUsage]:
    """Return what the run's model has read and written since."""
    now = run.usage
    read, wrote = now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens
    if not (read or wrote):
        return []
    return [
        TokenUsage(
            model=run.model,
            input_tokens=read,
            output_tokens=wrote,
            total_tokens=read + wrote,
            reasoning_tokens=_since(now.output_details, before.output_details, "reasoning_tokens"),
            cached_input_tokens=_since(now.input_details, before.input_details, "cached_tokens"),
        )
    ]


def _since(now: dict[str, int], before: dict[str, int], name: str) -> int | None:
    return None if name not in now else now[name] - before.get(name, 0)


def _ours(run: Run) -> dict[str, Any]:
    """Return what AG-UI has no word for: why the run has ended, and what its answer lacks."""
    told = {"runId": run.run_id, "reason": run.reason, "incomplete": run.incomplete and run.incomplete.value}
    return {"toolfleet": {name: value for name, value in told.items() if value}}
