"""What a person approves, as a digest: shown with the call, it comes back with the decision and must fit. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import orjson

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import BadArguments
from toolfleet.orchestrator.run.events import CallRecord


def digest_of(call: CallRecord, arguments: str | None = None) -> str:
    """What a call is approved by: SHA-256 of its id, its tool and its arguments, or others, to the byte.

    Of secrets it covers where they stand, and not what they are: it is shown to whoever sees the call.
    """
    shown = call.arguments if arguments is None else arguments
    return hashlib.sha256(orjson.dumps([call.call_id, call.tool, shown])).hexdigest()


def changed_since(
    calls: Iterable[CallRecord], approved: Mapping[str, str], sending: Mapping[str, str], limits: ArgumentLimits
) -> dict[str, Failed]:
    """The failures of calls that are about to be sent with other arguments than a person has approved, by call id.

    `approved` and `sending`: by call id, where they are not what the record shows.
    """
    failures = {}
    for call in calls:
        if not call.awaits_approval or call.approval is None:
            continue
        allowed = approved.get(call.call_id, call.arguments)
        sent = sending.get(call.call_id, allowed)
        if sent != allowed and sent != _read(call.tool, allowed, limits):
            said = f"{call.tool} was not called: its arguments were changed after a person had approved them."
            failures[call.call_id] = Failed(kind=FailureKind.DENIED, message=said)
    return failures


def _read(tool: str, arguments: str, limits: ArgumentLimits) -> str:
    try:
        return readable(tool, arguments, limits)
    except BadArguments:
        return arguments
