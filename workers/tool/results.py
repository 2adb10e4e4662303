"""What a tool gave back, turned into what the model reads: value in, result record out.

Knows nothing of Redis or Celery. Rows R1, R2 and R4 of docs/behaviours.md live here.
"""

from __future__ import annotations

from typing import Final

import orjson
from pydantic_core import PydanticSerializationError, to_json

from toolfleet.calls import Failed, FailureKind, MediaPart, Returned, Submitted
from toolfleet.media import Media
from toolfleet.strict_json import encodable
from toolfleet.trusted import trusted

_own_returned = trusted(Returned)

DONE: Final = "Done"


def record_of(value: object, *, returns_nothing: bool = False) -> Returned | Failed | Submitted:
    """Return the result record of a returned value, however large. What has no JSON form is a failure."""
    try:
        return _record_of(value, returns_nothing=returns_nothing)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        what = f"the tool returned a {type(value).__name__} that has no JSON form"
        return Failed(kind=FailureKind.ERROR, message=encodable(f"{what}: {error}"))


def _record_of(value: object, *, returns_nothing: bool) -> Returned | Failed | Submitted:
    match value:
        case Returned() | Submitted():
            value.model_dump_json()  # its fields are the tool's own: better refused here than lost on the way
            return value
        case None if returns_nothing:
            return _own_returned(content=DONE)
        case str():
            # Of a subclass only the text: what else it is or does, sizes included, is the tool's own affair.
            return _own_returned(content=encodable(str.__str__(value)))
        case Failed(kind=kind, message=message):
            return Failed(kind=kind, message=encodable(message))
        case _:
            return _structured(value)


def _structured(value: object) -> Returned:
    try:
        return _own_returned(content=orjson.dumps(value).decode())
    except (TypeError, orjson.JSONEncodeError):
        # Bytes are not JSON, so whatever holds media comes by here, and nothing else pays for the question.
        if isinstance(value, Media):
            return _with_media([value])
        if isinstance(value, list | tuple) and any(isinstance(each, Media) for each in value):
            return _with_media(value)
        media: list[MediaPart] = []
        return Returned(content=_as_json(_described(value, media)), media=tuple(media))


def _with_media(parts: list[object] | tuple[object, ...]) -> Returned:
    """Return the media, and a text that says what is where. Both are in the order given."""
    media: list[MediaPart] = []
    texts: list[str] = []
    for each in parts:
        if isinstance(each, Media):
            media.append(each.part)
            texts.append(media[-1].described)
        else:
            texts.append(encodable(each) if isinstance(each, str) else _as_json(_described(each, media)))
    return Returned(content="\n".join(texts), media=tuple(media))


def _described(value: object, media: list[MediaPart]) -> object:
    """Return the same with a text in the place of each of its media, which are put into `media`."""
    match value:
        case Media():
            media.append(value.part)
            return media[-1].described
        case dict():
            return {key: _described(each, media) for key, each in value.items()}
        case list() | tuple():
            return [_described(each, media) for each in value]
        case _:
            return value


def _as_json(value: object) -> str:
    # Models, sets, Decimals, integers beyond 64 bits: pydantic knows more types than orjson and is slower.
    return to_json(value, inf_nan_mode="null").decode()


def failure_of(error: BaseException, *, max_chars: int = 4000) -> Failed:
    """Return what the model reads when a tool raised: its message without a traceback."""
    try:
        text = encodable(str(error).strip()[:max_chars])
        # A bare name in quotes says nothing, nor does the number in sys.exit(3).
        if type(error).__str__ is KeyError.__str__ or (isinstance(error, SystemExit) and isinstance(error.code, int)):
            text = f"{type(error).__name__}: {text}"
    except Exception:  # noqa: BLE001  # an exception of the tool's own making may fail at that too
        text = ""
    return Failed(kind=FailureKind.ERROR, message=text or f"tool failed: {type(error).__name__}")
