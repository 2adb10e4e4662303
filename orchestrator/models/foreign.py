"""Records that others write: read with leave for what we do not know, refused by name where they do not fit.

Pure; shared by the wire formats.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.errors import ModelReplyInvalid


class ForeignRecord(BaseModel):
    """A provider's record. Fields we do not know are left aside: providers add some every month."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def read(cls, data: str | bytes, address: str) -> Self:
        """Return the record in `data`. Raises ModelReplyInvalid, naming the first thing that does not fit."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "body"
            raise ModelReplyInvalid(f"{address} sent no usable {cls.__name__}: {place}: {first['msg']}") from error


def extra_of(record: AssistantMessage | RequestedCall, provider: str, name: str) -> Any:
    """What `provider` once sent along with the record under `name`; None if it sent none, or another provider did."""
    kept = record.extras.get(provider)
    return kept.get(name) if isinstance(kept, dict) else None
