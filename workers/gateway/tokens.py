"""What a worker over HTTPS is given to name a call by: where the call is, sealed for the worker's key.

So no server has to remember what it has given out, and nobody can name a call that was not given to them. Pure.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal

from toolfleet.calls import Record, ToolCall
from toolfleet.errors import Refused
from toolfleet.streams.names import OFFERED
from toolfleet.wire import Seal
from toolfleet.work import Refusal, WorkRefused
from toolfleet.workers.delivery.message import Delivery

ATTEMPT: Final = "@attempt/"


def offered_to(key_id: str, worker: str) -> str:
    """Return the consumer that a worker's offers are pending with."""
    return f"{OFFERED}{key_id}/{worker}"


class Hold(Record):
    """One call at one worker: offered, or begun."""

    v: Literal[1] = 1
    kind: Literal["offer", "attempt"]
    worker: str
    nonce: str
    """Of this offer alone, and so of the attempt that it becomes."""
    stream: str
    entry_id: str
    counted: int
    """How often the entry had been delivered, this time included."""
    number: int
    """Which delivery of the call this is, other entries of it included."""
    call_id: str
    run_id: str
    tool: str
    tenant: str = ""
    reply_to: str
    deadline_unix_s: float
    repeatable: bool
    gates: str = ""
    began_unix_s: float = 0.0

    def consumer(self, key_id: str) -> str:
        """Return whose the pending entry is while this holds."""
        if self.kind == "offer":
            return offered_to(key_id, self.worker)
        return f"{ATTEMPT}{key_id}/{self.worker}/{self.nonce}"

    def begun(self, now_unix_s: float) -> Hold:
        """Return the attempt that an offer becomes."""
        return self.model_copy(update={"kind": "attempt", "began_unix_s": now_unix_s})

    @property
    def call(self) -> ToolCall:
        """The call, without what only its tool needs."""
        return ToolCall(
            call_id=self.call_id,
            run_id=self.run_id,
            tool=self.tool,
            arguments="",
            deadline_unix_s=self.deadline_unix_s,
            reply_to=self.reply_to,
            tenant=self.tenant,
        )

    def delivery(self, key_id: str) -> Delivery:
        """Return the delivery, as those see it who settle it or give it back."""
        return Delivery(
            task_id=self.call_id,
            task=self.tool,
            text=None,
            mac=None,
            stream=self.stream,
            entry_id=self.entry_id,
            consumer=self.consumer(key_id),
            deliveries=self.number,
            worker=name_in_fleet(key_id, self.worker),
            came_unix_s=self.began_unix_s,
            gates=self.gates,
        )


def name_in_fleet(key_id: str, worker: str) -> str:
    """Return what a worker is called in the fleet: no other key can take its name."""
    return f"{worker}@work.{key_id}"


def written(hold: Hold, key_id: str, seal: Seal) -> str:
    """Return the text that a worker is given."""
    return base64.urlsafe_b64encode(seal.close_kept(hold.model_dump_json().encode(), _place(key_id))).decode()


def read(token: str, key_id: str, seal: Seal, kind: Literal["offer", "attempt"]) -> Hold:
    """Return what a worker names. Raises WorkRefused for what was not given to its key, or as something else."""
    try:
        sealed = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        hold = Hold.model_validate_json(seal.open_kept(sealed, _place(key_id)), extra="ignore")
    except (Refused, ValueError, binascii.Error):
        hold = None
    if hold is None or hold.kind != kind:
        raise WorkRefused(
            Refusal.NOT_YOURS,
            f"this is no {kind} that this key was given: name what `poll` (an offer) or `ack` (an attempt) answered, "
            "exactly, with the key that asked",
        )
    return hold


def _place(key_id: str) -> str:
    return f"work {key_id}"
