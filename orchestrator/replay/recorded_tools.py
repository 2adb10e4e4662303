"""Tools that answer as they did in a recorded run: the same tool, asked for the same, comes to the same. No effect.

What was not asked for then has no result; the model reads that, and it is counted.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.background import ARGUMENT
from toolfleet.calls import Failed, FailureKind, Returned, ToolCall, ToolResult
from toolfleet.errors import BadArguments
from toolfleet.extra_arguments import taken_out
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.replay.recording import Recording, is_of_no_tool
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.tally import handle_of_task
from toolfleet.orchestrator.status.call_reader import recorded_result
from toolfleet.orchestrator.status.call_state import CallState, result_state
from toolfleet.orchestrator.status.handles import Status, Tasks
from toolfleet.orchestrator.tools.builtin import SEARCH_TOOLS, TASK_CANCEL, TASK_RESULT
from toolfleet.tool import ToolSpec

DECIDED_HERE: Final = frozenset({SEARCH_TOOLS, TASK_RESULT, TASK_CANCEL})
"""What the orchestrator's own code answers, of the tools and tasks that the evaluated run has itself."""

Asked = tuple[str, Any]
"""A tool, and arguments in a form in which those that mean the same are equal."""


class RecordedTools:
    """The calls of one recorded run, by what was asked. Of several with the same each is given once, then the last."""

    def __init__(self, recording: Recording, limits: ArgumentLimits) -> None:
        self._limits = limits
        self._specs = {**recording.tools, **recording.agents}
        self._slow = recording.started.terms.slow
        self._results: defaultdict[Asked, deque[Returned | Failed]] = defaultdict(deque)
        self._handles: defaultdict[Asked, deque[str]] = defaultdict(deque)
        self._given: dict[str, Returned | Failed] = {}
        self.unrecorded: list[str] = []
        """The ids of the calls that were not asked for then."""
        for call in recording.run.calls:
            result = None if is_of_no_tool(call) else recorded_result(call)
            if result is not None:
                asked = self._asked(call.tool, call.arguments)
                self._results[asked].append(result)
                self._handles[asked].append(handle_of_task(call))

    def of_sent(self, call: ToolCall, spec: ToolSpec | None) -> ToolResult | None:
        """What the call came to then; None where its model gets a handle of it."""
        result = self._given[call.call_id] = self._answer(call.call_id, call.tool, call.arguments)
        return None if spec is not None and spec.long_running and self._slow == "handle" else result

    def of_sent_before(self, call_id: str) -> ToolResult | None:
        """The same of a call of an earlier step."""
        return self._given.get(call_id)

    def here(self, call: CallRecord, scope: CallScope, fetched: dict[str, ToolResult]) -> ToolResult | None:
        """What a tool of an interceptor came to, or a part of a long result."""
        del fetched
        if call.tool in DECIDED_HERE or call.tool not in scope.offered:
            return None
        return self._answer(call.call_id, call.tool, call.arguments)

    def back(self, call_ids: Collection[str]) -> dict[str, ToolResult]:
        """All of them: nothing takes any time."""
        return {call_id: self._given[call_id] for call_id in call_ids if call_id in self._given}

    def handle_of(self, call: CallRecord) -> str:
        """What it was called then, or a name that says which call it is."""
        known = self._handles.get(self._asked(call.tool, call.arguments))
        return (known.popleft() if known else "") or f"task-{call.turn}-{call.call_id.rpartition('.')[2]}"

    def status(self, handle: str, tasks: Tasks) -> Status:
        """How a task stands: it has ended."""
        call = tasks.get(handle)
        result = None if call is None else self._given.get(call.call_id)
        if call is None or result is None:
            message = "this run has no task with this id; check the task_id"
            return Status(state=CallState.UNKNOWN, task_id=handle, message=message)
        return Status(state=result_state(result), task_id=handle, call_id=call.call_id, tool=call.tool, result=result)

    def _answer(self, call_id: str, tool: str, arguments: str) -> Returned | Failed:
        results = self._results.get(self._asked(tool, arguments))
        if results is None:
            self.unrecorded.append(call_id)
            return self._not_recorded(tool)
        return results.popleft() if len(results) > 1 else results[0]

    def _not_recorded(self, tool: str) -> Failed:
        known = sum(len(results) for (name, _), results in self._results.items() if name == tool)
        others = f"{known} other calls of it are" if known != 1 else "one other call of it is"
        said = f"{tool} was not called: this is an evaluation on a recorded run, and no result is recorded for these "
        return Failed(kind=FailureKind.ERROR, message=f"{said}arguments ({others}). Nothing has happened.")

    def _asked(self, tool: str, arguments: str) -> Asked:
        try:
            text = readable(tool, arguments, self._limits)
            spec = self._specs.get(tool)
            if spec is not None and spec.background is not None:
                text, _ = taken_out(tool, text, (ARGUMENT,), self._limits)
            return tool, _in_one_form(json.loads(text, parse_float=Decimal))
        except (BadArguments, ValueError, RecursionError):
            return tool, arguments


def _in_one_form(value: Any) -> Any:
    """Return a JSON value as one that is equal to others that mean the same: members in any order, 1.0 and 1."""
    match value:
        case bool():
            return ("truth", value)
        case dict():
            return ("object", frozenset((name, _in_one_form(item)) for name, item in value.items()))
        case list():
            return ("array", tuple(map(_in_one_form, value)))
        case _:
            return value


def as_evaluated(tools: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """Return specs with which nobody has to be asked: what people have decided is among the recorded results."""
    return {
        name: spec.model_copy(update={"requires_approval": False, "compensates": False}) for name, spec in tools.items()
    }
