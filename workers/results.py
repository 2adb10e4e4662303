"""What a tool gave back, turned into what the model reads: value in, result record out.

Knows nothing of Redis or Celery. Rows R1 and R4 of the documented behaviours live here.
"""

from __future__ import annotations

from typing import Final

import orjson
from pydantic_core import PydanticSerializationError, to_json

from toolfleet.calls import Failed, FailureKind, Returned, Submitted

DONE: Final = "Done"


def to_result(value: object, *, returns_nothing: bool, max_bytes: int) -> Returned | Failed | Submitted:
    """The result record of a returned value. Text longer than `max_bytes` is cut, and says so."""
    try:
        return _within(_record_of(value, returns_nothing=returns_nothing), max_bytes)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        what = f"the tool returned a {type(value).__name__} that has no JSON form"
        return Failed(kind=FailureKind.ERROR, message=encodable(f"{what}: {error}"))


def _record_of(value: object, *, returns_nothing: bool) -> Returned | Submitted:
    match value:
        case Returned() | Submitted():
            value.model_dump_json()  # its fields are the tool's own: better refused here than lost on the way
            return value
        case None if returns_nothing:
            return Returned(content=DONE)
        case str():
            return Returned(content=encodable(value))
        case _:
            return Returned(content=_as_json(value))


def _as_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        # Models, sets, Decimals, integers beyond 64 bits: pydantic knows more types and is slower.
        return to_json(value, inf_nan_mode="null").decode()


def _within(result: Returned | Submitted, max_bytes: int) -> Returned | Submitted:
    if not isinstance(result, Returned) or len(result.content) <= max_bytes // 4:
        return result  # even four-byte characters fit
    encoded = result.content.encode()
    if len(encoded) <= max_bytes:
        return result
    kept = encoded[:max_bytes].decode("utf-8", "ignore")
    note = f"\n[cut: the result has {len(encoded)} bytes, the first {len(kept.encode())} are shown]"
    return result.model_copy(update={"content": kept + note})


def failure_of(error: BaseException, *, max_chars: int = 4000) -> Failed:
    """What the model reads when a tool raised: its message without a traceback."""
    try:
        text = encodable(str(error).strip()[:max_chars])
    except Exception:  # noqa: BLE001  # an exception of the tool's own making may fail at that too
        text = ""
    return Failed(kind=FailureKind.ERROR, message=text or f"tool failed: {type(error).__name__}")


def encodable(text: str) -> str:
    """The text with half surrogate pairs replaced, which file names and cut strings have and JSON has not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
