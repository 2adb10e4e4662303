"""A signed call as a message of Celery's protocol 2. The one place that knows how such a message looks."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson

from toolfleet.calls import ToolCall
from toolfleet.gates import gates_of
from toolfleet.keys import CLAIM_GRACE_S
from toolfleet.streams import Priority
from toolfleet.streams.direct import TaskMessage
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

_NO_OPTIONS: Final[dict[str, Any]] = {}
"""What a message of Celery's may say of further tasks: nothing."""


def task_message(call: ToolCall, spec: ToolSpec, priority: Priority, seal: Seal, lane: str = "") -> TaskMessage:
    """Make the message that brings a call to its tool's queue, or to a lane of it.

    Raises Refused for a call that no worker would take.
    """
    text, mac = seal.close_call(call)
    # What Celery's protocol 2 cannot do without. Arguments are not shown: they may hold secrets.
    # `contract` lets a worker that serves another version of the tool pass the call to one that serves this.
    headers: dict[str, Any] = {"lang": "py", "task": call.tool, "id": call.call_id, "contract": spec.contract}
    if not spec.effect.repeatable:
        # The transport claims the call for a worker while it reads it, so the claim costs no round trip.
        headers["claim"] = max(1, int(call.deadline_unix_s - time.time())) + CLAIM_GRACE_S
    return TaskMessage(
        spec.queue,
        priority,
        headers,
        orjson.dumps([[text, mac], {}, _NO_OPTIONS]),
        lane,
        tenant=call.tenant,
        run_id=call.run_id,
        gates=gates_of(call, spec) if spec.limits is not None else (),
        deadline_unix_s=call.deadline_unix_s,
    )
