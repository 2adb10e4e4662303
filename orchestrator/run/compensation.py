"""All or nothing: when a call of a batch has failed, what its neighbours did is taken back, the last one first.

Decides what is taken back and what is said of it. Who sends the calls is `calls`; how it is done, a tool's author says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolfleet.calls import Failed, FailureKind, Returned, ToolResult
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.tool import ToolSpec


class Done(NamedTuple):
    """A call that has had its effect."""

    record: CallRecord
    result: Returned


def to_take_back(
    calls: Sequence[CallRecord], results: Mapping[str, ToolResult], offered: Mapping[str, ToolSpec]
) -> list[Done]:
    """What succeeded and can be taken back, the last call first; nothing while no call has failed."""
    if not any(isinstance(results.get(call.call_id), Failed) for call in calls):
        return []
    back = [(call, results.get(call.call_id)) for call in reversed(calls)]
    return [
        Done(call, result)
        for call, result in back
        if isinstance(result, Returned) and call.tool in offered and offered[call.tool].compensates
    ]


def taken_back(
    calls: Sequence[CallRecord], results: Mapping[str, ToolResult], answers: Mapping[str, ToolResult]
) -> dict[str, ToolResult]:
    """The results of a batch once its compensations have answered, by the ids of the calls that they take back."""
    reason = "; ".join(
        f"{call.tool} failed: {result.message}"
        for call in calls
        if isinstance(result := results.get(call.call_id), Failed)
    )
    told = {call.call_id: _told(call, answers[call.call_id], reason) for call in calls if call.call_id in answers}
    return dict(results) | told


def _told(call: CallRecord, answer: ToolResult, reason: str) -> Failed:
    if isinstance(answer, Returned):
        said = f"{call.tool} had succeeded and was rolled back, because {reason}"
        return Failed(kind=FailureKind.ROLLED_BACK, message=said)
    problem = answer.message if isinstance(answer, Failed) else "it goes on elsewhere"
    said = f"{call.tool} has succeeded and should have been rolled back, because {reason}. Rolling it back failed: "
    return Failed(kind=FailureKind.IN_DOUBT, message=f"{said}{problem}. Check what stands before you repeat it.")
