"""The calls that a reply asks for, as records: named by their place, and refused where they must not be sent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from toolfleet.calls import Failed, call_id
from toolfleet.messages import RequestedCall
from toolfleet.orchestrator.run.events import CallRecord, ModelReplied
from toolfleet.orchestrator.run.limits import over_limit
from toolfleet.orchestrator.run.refusals import cut_off
from toolfleet.trusted import changed, trusted

_call_record = trusted(CallRecord)


def requested(
    run_id: str,
    turn: int,
    requests: Sequence[RequestedCall],
    *,
    begins: int = 0,
    masked: Collection[str] = (),
    sending: Collection[str] = (),
) -> tuple[CallRecord, ...]:
    """The calls of a reply from its place `begins` on."""
    masked, sending = set(masked), set(sending)
    return tuple(
        [
            _call_record(
                call_id=(id_ := call_id(run_id, turn, position)),
                turn=turn,
                requested_id=request.id,
                tool=request.name,
                arguments=request.arguments,
                kept_as=id_ if id_ in masked else "",
                is_sending=id_ in sending,
            )
            for position, request in enumerate(requests, begins)
        ]
    )


def asked_at(call_id_: str) -> tuple[int, int]:
    """The turn whose reply has asked for a call, and its place there; -1 for either in what is no id of a call."""
    before, _, place = call_id_.rpartition(".")
    turn = before.rpartition(".")[2]
    return int(turn) if turn.isdecimal() else -1, int(place) if place.isdecimal() else -1


def place_of(call_id_: str) -> int:
    """The place of a call in its reply; -1 for what is no id of a call."""
    return asked_at(call_id_)[1]


def turn_of(call_id_: str) -> int:
    """The turn whose reply has asked for a call; -1 for what is no id of a call."""
    return asked_at(call_id_)[0]


def refused(asked: tuple[CallRecord, ...], event: ModelReplied) -> tuple[CallRecord, ...]:
    """The calls of a whole reply, with the refusals of those that must not be sent: what was sent stays as it is."""
    refusals: dict[str, Failed] = {}
    if event.withheld:
        refusals = {
            call.call_id: over_limit(call.tool, event.withheld[call.call_id])
            for call in asked
            if call.call_id in event.withheld
        }
    if event.over_limit is not None:
        refusals = {call.call_id: over_limit(call.tool, event.over_limit) for call in asked}
    if asked and event.incomplete and (half := cut_off(event.message.tool_calls[-1], event.incomplete)) is not None:
        refusals[asked[-1].call_id] = half
    if not refusals:
        return asked
    return tuple(
        changed(call, refusal=refusals[call.call_id], is_withheld=call.call_id in event.withheld)
        if call.call_id in refusals and not call.is_sending and call.deadline_unix_s is None
        else call
        for call in asked
    )


def unless_sent(asked: tuple[CallRecord, ...], refusal: Callable[[str], Failed]) -> tuple[CallRecord, ...]:
    """The calls of a whole reply, with this refusal of all that were not sent and are not refused already."""
    return tuple(
        call
        if call.refusal is not None or call.is_sending or call.deadline_unix_s is not None
        else changed(call, refusal=refusal(call.tool))
        for call in asked
    )
