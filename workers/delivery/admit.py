"""Whether a delivered call may start: pure decisions, no clock, no Redis.

The order of the checks is the order of trust: first who wrote it, then whether it is still wanted, then whether a
second start could do harm.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from toolfleet.calls import CallFrame, Effect, Failed, FailureKind, ToolCall
from toolfleet.errors import Refused
from toolfleet.keys import CLOCKS_APART_S
from toolfleet.wire import OtherVersion, Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.tool.failures import crashed, expired, in_doubt, unread


class Admitted(NamedTuple):
    """The call may start. With `must_claim` it starts only once this delivery holds the claim of the call."""

    call: ToolCall
    must_claim: bool


class Unresolved(NamedTuple):
    """An earlier delivery may have had the effect. The call starts only if the tool's `reconcile` says not done.

    `must_claim` is as in `Admitted`, and holds before anything is asked.
    """

    call: ToolCall
    must_claim: bool


class Ended(NamedTuple):
    """The call must not start. It ends with this result."""

    call: ToolCall
    result: Failed
    dead_letter: bool = False


class Unread(NamedTuple):
    """The call is of a version that another worker may read. It ends with this result where none does."""

    call: ToolCall
    version: int
    otherwise: Failed


class Unbelievable(NamedTuple):
    """The message is nobody's call. It goes to the dead letters with the reason, and there is no result."""

    reason: str


OF_ANOTHER: Final = Unbelievable("the envelope belongs to another call or tool")

Decision = Admitted | Unresolved | Ended | Unread | Unbelievable


def admit(
    delivery: Delivery,
    effect: Effect,
    seal: Seal,
    *,
    now_unix_s: float,
    max_deliveries: int,
    reconciles: bool = False,
) -> Decision:
    """Decide what happens to a delivery.

    `reconciles` says that the tool can tell what became of an earlier attempt.
    """
    try:
        call = seal.open_call(delivery.text, delivery.mac)
    except OtherVersion as other:
        return _unread(delivery, other.frame)
    except Refused as refusal:
        return Unbelievable(str(refusal))
    if not is_of(delivery, call):
        return OF_ANOTHER
    must_claim = not effect.repeatable and not delivery.is_claimed_until(call.deadline_unix_s + CLOCKS_APART_S)
    if delivery.deliveries > 1 and not effect.repeatable:
        in_time = now_unix_s < call.deadline_unix_s and delivery.deliveries <= max_deliveries
        # What is asked there is what became of the tool's own effect, not of taking it back.
        is_asked = reconciles and call.undoes is None and in_time and can_be_reconciled(delivery)
        return Unresolved(call, must_claim) if is_asked else Ended(call, in_doubt(call.tool))
    if failure := _must_not_start(call, delivery, now_unix_s, max_deliveries):
        return Ended(call, failure, dead_letter=failure.kind is FailureKind.CRASHED)
    return Admitted(call, must_claim)


def is_of(delivery: Delivery, call: ToolCall | CallFrame) -> bool:
    """Return whether a delivery is that of the call in its envelope.

    The MAC covers the call, not Celery's headers: a signed call under another task's name must not run as that task.
    """
    return call.call_id == delivery.task_id and call.tool == delivery.task


def _unread(delivery: Delivery, frame: CallFrame) -> Unread | Unbelievable:
    if not is_of(delivery, frame):
        return OF_ANOTHER
    may_have_begun = delivery.deliveries > 1 and delivery.sent_once
    otherwise = in_doubt(frame.tool) if may_have_begun else unread(frame.tool, frame.v)
    return Unread(frame.call, frame.v, otherwise)


def can_be_reconciled(delivery: Delivery) -> bool:
    """Return whether a further delivery means that the worker before is lost.

    Only Redis Streams have leases. Elsewhere the first attempt may still be at work, and "not done" would be no news.
    """
    return bool(delivery.stream)


def _must_not_start(call: ToolCall, delivery: Delivery, now_unix_s: float, max_deliveries: int) -> Failed | None:
    if delivery.deliveries > max_deliveries:
        return crashed(call.tool, delivery.deliveries - 1)
    if delivery.expired or now_unix_s >= call.deadline_unix_s:
        return expired(call.tool)
    return None
