"""All or nothing: what the calls of a group have done is taken back when one of them has failed.

Decided in `run/compensation.py`, done here. A compensation is a call with an id of its own, derived from that of the
call which it takes back, and so it runs once: an orchestrator that was lost in the midst of a rollback costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from toolfleet.calls import Returned, ToolCall, ToolResult, undo_id
from toolfleet.orchestrator.calls.outcome import GroupOutcome
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.fleet.barrier import Barrier
from toolfleet.orchestrator.fleet.dispatch import Outgoing
from toolfleet.orchestrator.run.compensation import taken_back, to_take_back
from toolfleet.orchestrator.run.events import CallRecord


async def roll_back(
    services: CallServices, calls: Sequence[CallRecord], outcome: GroupOutcome, scope: CallScope
) -> GroupOutcome:
    """Take back what succeeded if any call of the group has failed, each before the next, the last one first.

    Returns the outcome as the model is to read it. Raises BrokerUnreachable, StoreUnreachable.
    """
    done = to_take_back(calls, outcome.results, scope.offered)
    if not done:
        return outcome
    arguments = await services.vault.arguments([each.record for each in done])
    answers: dict[str, ToolResult] = {}
    for record, result in done:
        given = arguments.get(record.call_id, record.arguments)
        undoing = _undoing(services, record, result, scope, given)
        answers[record.call_id] = await _make(services, undoing, scope, record.tool)
    return replace(outcome, results=taken_back(calls, outcome.results, answers))


def _undoing(
    services: CallServices, record: CallRecord, result: Returned, scope: CallScope, arguments: str
) -> ToolCall:
    call = services.terms.tool_call(record, scope.offered[record.tool], scope, arguments)
    # Not the turn's deadline: its end may be what has failed the others.
    deadline_unix_s = time.time() + services.terms.settings.call_timeout_s
    return call.model_copy(
        update={"call_id": undo_id(record.call_id), "undoes": result, "deadline_unix_s": deadline_unix_s}
    )


async def _make(services: CallServices, call: ToolCall, scope: CallScope, tool: str) -> ToolResult:
    """Make one call and wait for its result, however long that takes."""
    barrier = Barrier(patient=True)
    try:
        await services.gatherer.room()
        services.gatherer.expect(call, barrier)
        if await services.dispatcher.send([Outgoing(call, scope.offered[tool], scope.priority)]):
            # Another orchestrator may have sent it before, and its answer been told to that one.
            await services.gatherer.look_up([call.call_id])
        await barrier.wait()
    finally:
        services.gatherer.give_up([call.call_id])
    return barrier.results[call.call_id]
