"""The OpenAPI document, made true where the framework does not know better: media types, streams, further statuses.

Pure: a document in, the same document out.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from toolfleet.orchestrator.doors.http.problems import MEDIA_TYPE

Json = dict[str, Any]

STREAM: Final = "text/event-stream"

EVENT: Final[Json] = {
    "description": "One event of the stream.",
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""What the schema of a stream describes before OpenAPI 3.2 is each of its events."""

STATUSES_OF_OPENAI_DOORS: Final = {
    HTTPStatus.NOT_FOUND: "There is no such model, or response",
    HTTPStatus.CONFLICT: "It does not stand so that this could happen",
    HTTPStatus.BAD_GATEWAY: "The run has failed, or the model could not be asked",
}
"""What OpenAI's doors answer with besides what all do."""

LATE_BODY: Final = "The body did not arrive in time"


def corrected(document: Json) -> Json:
    """Return the document, with the media type that problems really have, and every status that is answered."""
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        responses = operation["responses"]
        refused = responses[str(HTTPStatus.BAD_REQUEST.value)]
        further = STATUSES_OF_OPENAI_DOORS if "openai" in operation.get("tags", ()) else {}
        if "requestBody" in operation:
            further = {**further, HTTPStatus.REQUEST_TIMEOUT: LATE_BODY}
        for status, description in further.items():
            told = responses.setdefault(str(status.value), {"description": description})
            told.setdefault("content", refused["content"])
        for status, response in responses.items():
            _correct(int(status), response.get("content", {}))
    _require_what_tells_apart(document, document["components"]["schemas"])
    return document


def _require_what_tells_apart(part: Any, schemas: Json) -> None:
    """Say of the members of each union that they need the field that tells which one it is."""
    if isinstance(part, dict):
        told = part.get("discriminator", {})
        for reference in told.get("mapping", {}).values():
            required = schemas[reference.rsplit("/", 1)[1]].setdefault("required", [])
            if told["propertyName"] not in required:
                required.append(told["propertyName"])
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _require_what_tells_apart(each, schemas)


def _correct(status: int, content: Json) -> None:
    if status >= HTTPStatus.BAD_REQUEST and "application/json" in content:
        content[MEDIA_TYPE] = content.pop("application/json")
    if STREAM in content:
        content[STREAM]["schema"] = EVENT
