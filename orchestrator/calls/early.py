"""Sending calls of a reply that the model is still writing. Nobody expects their results yet: the whole reply does."""

from __future__ import annotations

from collections.abc import Sequence

from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.fleet.dispatch import Outgoing
from toolfleet.orchestrator.run.events import CallRecord, CallsSent


async def send_early(services: CallServices, calls: Sequence[CallRecord], scope: CallScope) -> CallsSent | None:
    """Send calls of an unfinished reply, which may go early; what is to be written down of them.

    None when there are none, or when they could not be sent: then they go with the whole reply.
    """
    outgoing = []
    for record in calls:
        spec = scope.offered[record.tool]
        call = services.terms.tool_call(record, spec, scope, record.arguments)
        outgoing.append(Outgoing(call, spec, scope.priority))
    if not outgoing or not await services.dispatcher.send(outgoing):
        return None
    for each in outgoing:
        scope.tell_start(each.call, each.spec)
    return CallsSent(
        deadlines_unix_s={each.call.call_id: each.call.deadline_unix_s for each in outgoing},
        direct=tuple(each.call.call_id for each in outgoing if each.spec.return_direct),
    )
