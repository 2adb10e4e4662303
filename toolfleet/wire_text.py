"""Calls and results as the JSON that travels. Common ones say what they must; their defaults are left out.

Every reader takes those for granted (`wire/v1/schemas/`). A quarter less is signed, sent, kept, copied and read so, and
orjson writes it quicker than pydantic does, which writes all others.
"""

from __future__ import annotations

from typing import Final

import orjson

from toolfleet.calls import Failed, Returned, Submitted, ToolCall

_OMITTED_WHERE_EMPTY: Final = ("tracestate", "baggage", "tenant", "subject", "version")


def text_of_call(call: ToolCall) -> bytes:
    """Return a call as JSON. Raises PydanticSerializationError when it has none."""
    if call.attempt != 1 or call.context or call.state or call.undoes is not None:
        return call.__pydantic_serializer__.to_json(call)
    fields: dict[str, str | int | float] = {
        "v": call.v,
        "call_id": call.call_id,
        "run_id": call.run_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "deadline_unix_s": call.deadline_unix_s,
        "reply_to": call.reply_to,
    }
    if call.traceparent is not None:
        fields["traceparent"] = call.traceparent
    if call.tenant or call.subject or call.version or call.tracestate or call.baggage:
        for name in _OMITTED_WHERE_EMPTY:
            if value := getattr(call, name):
                fields[name] = value
    try:
        return orjson.dumps(fields)
    except TypeError:  # half a character
        return call.__pydantic_serializer__.to_json(call)


def text_of_result(result: Returned | Failed | Submitted) -> bytes:
    """Return a result as JSON. Raises PydanticSerializationError when it has none."""
    if type(result) is not Returned or _returns_more(result):
        return result.__pydantic_serializer__.to_json(result)
    try:
        return b'{"type":"returned","content":%b}' % orjson.dumps(result.content)
    except TypeError:
        return result.__pydantic_serializer__.to_json(result)


def _returns_more(result: Returned) -> bool:
    return bool(
        result.state
        or result.attributes
        or result.artifact is not None
        or result.media
        or result.attempt is not None
        or result.repaired
        or result.spent is not None
    )
