"""Records that others write: read with leave for what we do not know, refused by name where they do not fit.

Pure; shared by the wire formats.
"""

from __future__ import annotations

import json
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.errors import ModelReplyInvalid
from toolfleet.strict_json import cut_to_depth

READ_DEPTH: Final = 180
"""Beyond 200 levels pydantic gives up. Arguments that deep are refused, and what is left of them is deep enough."""


class ForeignRecord(BaseModel):
    """A provider's record. Fields we do not know are left aside: providers add some every month."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def read(cls, data: str | bytes, address: str) -> Self:
        """Return the record in `data`. Raises ModelReplyInvalid, naming the first thing that does not fit.

        Its strings may hold halves of characters: a model's text is cut anywhere, and the other half comes next.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            refused = error
        if (odd := _read_oddly(data)) is not None:
            try:
                return cls.model_validate(odd)
            except ValidationError as error:
                refused = error
        raise _unusable(cls.__name__, refused, address) from refused


def _read_oddly(data: str | bytes) -> Any:
    """Return the value of a JSON text that a strict parser refuses; None if it is none at all."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    try:
        return json.loads(cut_to_depth(text, READ_DEPTH))
    except ValueError:
        return None


def _unusable(record: str, error: ValidationError, address: str) -> ModelReplyInvalid:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "body"
    return ModelReplyInvalid(f"{address} sent no usable {record}: {place}: {first['msg']}")


def extra_of(record: AssistantMessage | RequestedCall, provider: str, name: str) -> Any:
    """What `provider` once sent along with the record under `name`; None if it sent none, or another provider did."""
    kept = record.extras.get(provider)
    return kept.get(name) if isinstance(kept, dict) else None
