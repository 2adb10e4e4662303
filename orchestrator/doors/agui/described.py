"""The body of a request as the OpenAPI document shows it, whether or not the protocol's package is there.

AG-UI's own schema is the one that counts; this is what of it is taken here. Pictures, and what front ends show beside
the conversation, are taken as well.
"""

from __future__ import annotations

from typing import Any, Final

from toolfleet.orchestrator.doors.agui.identity import MAX_NAME_CHARS

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
PERHAPS: Final[Json] = {"type": ["string", "null"]}
NAME: Final[Json] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS}
MESSAGE_ID: Final[Json] = {"type": "string", "maxLength": MAX_NAME_CHARS}
SPEAKER: Final[Json] = {"type": ["string", "null"], "maxLength": 256}


def _object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _list(items: Json, *, may_be_null: bool = True) -> Json:
    return {"type": ["array", "null"] if may_be_null else "array", "items": items}


def _said_by(role: str, required: Json, optional: Json | None = None) -> Json:
    return _object({"id": MESSAGE_ID, "role": {"const": role}, **required}, optional)


PARTS: Final[Json] = {"anyOf": [TEXT, _list(_object({"type": {"const": "text"}, "text": TEXT}), may_be_null=False)]}

CALL: Final[Json] = _object(
    {"id": TEXT, "function": _object({"name": TEXT, "arguments": TEXT})}, {"type": {"const": "function"}}
)

MESSAGE: Final[Json] = {
    "oneOf": [
        _said_by("user", {"content": PARTS}, {"name": SPEAKER}),
        _said_by("system", {"content": TEXT}, {"name": SPEAKER}),
        _said_by("developer", {"content": TEXT}, {"name": SPEAKER}),
        _said_by("assistant", {}, {"content": PERHAPS, "name": SPEAKER, "toolCalls": _list(CALL)}),
        _said_by("tool", {"toolCallId": TEXT, "content": PARTS}, {"error": PERHAPS}),
    ]
}

TOOL: Final[Json] = _object(
    {"name": {"type": "string", "minLength": 1, "maxLength": 256}, "description": TEXT},
    {"parameters": {"type": ["object", "null"]}},
)

RESUME: Final[Json] = _object({"interruptId": TEXT, "status": {"enum": ["resolved", "cancelled"]}}, {"payload": {}})

ASKED: Final[Json] = {
    **_object(
        {"threadId": NAME, "runId": NAME, "messages": {"type": "array", "items": MESSAGE, "minItems": 1}},
        {
            "protocolVersion": {"type": ["string", "null"], "pattern": r"^1(\..*)?$"},
            "parentRunId": PERHAPS,
            "state": {"type": ["object", "null"]},
            "tools": _list(TOOL),
            "context": _list(_object({"description": TEXT, "value": TEXT})),
            "forwardedProps": {},
            "resume": _list(RESUME),
        },
    ),
    "examples": [
        {
            "threadId": "thread-1",
            "runId": "run-1",
            "messages": [{"id": "m1", "role": "user", "content": "What is the square root of 2?"}],
        }
    ],
}
"""AG-UI's `RunAgentInput`."""
