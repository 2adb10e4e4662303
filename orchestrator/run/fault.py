"""Why a run has no answer where that is its model's doing: a record, so that it is told alike after a restart. Pure."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.orchestrator.errors import ModelError, ModelRefused, ModelUnreachable


class FaultKind(StrEnum):
    """What can be done about it."""

    REFUSED = "refused"
    """Its provider refused the request: another one might be taken."""
    UNREACHABLE = "unreachable"
    """Its provider did not answer, or had no room: later it may."""
    UNUSABLE = "unusable"
    """What it answered could not be used."""


class Fault(Record):
    """What kept the model from answering."""

    kind: FaultKind
    status: int | None = None
    """What its provider answered with, if that was HTTP's."""
    message: str = ""
    """Its provider's own words, without its address and our remedies."""
    code: str = Field(default="", description="Its provider's own code or type for this.")
    param: str = Field(default="", description="The field of the request that its provider complains of.")
    retry_after_s: float | None = None
    """When its provider wants to be asked again."""


def fault_in(error: Exception) -> Fault | None:
    """The fault that an error stands for; None for one that is not the model's."""
    match error:
        case ModelRefused():
            kind = FaultKind.REFUSED
        case ModelUnreachable():
            kind = FaultKind.UNREACHABLE
        case ModelError():
            kind = FaultKind.UNUSABLE
        case _:
            return None
    said = error.said
    return Fault(
        kind=kind,
        status=said.status,
        message=said.message,
        code=said.code,
        param=said.param,
        retry_after_s=said.retry_after_s if said.retry_after_s is None or isfinite(said.retry_after_s) else None,
    )
