"""Records that others write: read with leave for what we do not know, refused by name where they do not fit.

Pure; shared by the wire formats. A record is a plain dictionary of known fields, because a reply comes in hundreds of
them: objects would take three times as long to make.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.errors import ModelReplyInvalid
from toolfleet.strict_json import cut_to_depth

READ_DEPTH: Final = 180
"""Beyond 200 levels pydantic gives up. Arguments that deep are refused, and what is left of them is deep enough."""

RecordT = TypeVar("RecordT")


class Foreign(Generic[RecordT]):
    """Reads a provider's records of one type. Fields we do not know are left aside: providers add some every month."""

    def __init__(self, record: type[RecordT]) -> None:
        self._record = record

    def read(self, data: str | bytes, address: str) -> RecordT:
        """Return the record in `data`. Raises ModelReplyInvalid, naming the first thing that does not fit.

        Its strings may hold halves of characters: a model's text is cut anywhere, and the other half comes next.
        """
        try:
            return cast("RecordT", self._reader.validate_json(data))
        except ValidationError as error:
            refused = error
        if (odd := _read_oddly(data)) is not None:
            try:
                return cast("RecordT", self._reader.validate_python(odd))
            except ValidationError as error:
                refused = error
        raise _unusable(self._record.__name__, refused, address) from refused

    @cached_property
    def _reader(self) -> SchemaValidator:
        # The adapter's own methods look at options that are never given here, which takes as long as a small record.
        return cast("SchemaValidator", TypeAdapter(self._record).validator)


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
