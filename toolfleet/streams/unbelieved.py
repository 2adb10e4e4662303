"""Reads what nobody has vouched for: text from Redis that anybody with its password may have written.

Whatever it is, the price is bounded and the only error is `Malformed`. No types but JSON's own are made, nothing is
decompressed, and of a large body nothing is parsed but the one string that a signature covers.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

CONTENT_TYPE: Final = "application/json"
CONTENT_ENCODING: Final = "utf-8"

MAX_HEAD_BYTES: Final = 16 * 1024
"""Headers, and properties. Ours have a few hundred bytes."""

MAX_PARSED_BYTES: Final = 16 * 1024
"""A body up to this is parsed whole. Parsed JSON can take thirty times the memory of its text."""

MAX_TOLD_BYTES: Final = 1024 * 1024
"""What is no task: an answer to `celery inspect`, or Celery's events."""

_BEGINS: Final = re.compile(rb'\s{0,9}\[\s{0,9}\[\s{0,9}(?=")')
_ENDS: Final = re.compile(rb'(?<=")\s{0,9},\s{0,9}("[0-9A-Za-z]{0,128}")\s{0,9}\]\s{0,9},')
"""What stands around the text of a large call. The second occurs in no JSON string, where a quote has a backslash."""

MAX_END_BYTES: Final = 4096
"""How much may follow a large text: what signs it, and options that are not looked at."""


class Malformed(ValueError):
    """What no process may be given; the text says why, and is the same for all messages of one kind."""


class Told(NamedTuple):
    """A message to all who listen: a control command, or events."""

    body: bytes
    decoded: Any
    headers: dict[str, Any]
    exchange: str
    routing_key: str


def parsed(text: bytes, max_bytes: int, what: str) -> Any:
    """Return the JSON in a text. Raises Malformed."""
    if len(text) > max_bytes:
        raise Malformed(f"{what} larger than any of ours")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Malformed(f"{what} no JSON") from None


def parsed_object(text: bytes, what: str) -> dict[str, Any]:
    """Return the object of a head in JSON. Raises Malformed."""
    value = parsed(text, MAX_HEAD_BYTES, what)
    if type(value) is not dict:
        raise Malformed(f"{what} no object")
    return value


def task_body(body: bytes) -> list[Any]:
    """Return arguments, keyword arguments and options of a task. Raises Malformed.

    Of a large body only the first two arguments, which are texts; what comes with them is not looked at.
    """
    if len(body) > MAX_PARSED_BYTES:
        return [_large_envelope(body), {}, {}]
    decoded = parsed(body, MAX_PARSED_BYTES, "the body is")
    if type(decoded) is not list or [type(part) for part in decoded] != [list, dict, dict]:
        raise Malformed("the body is not arguments, keyword arguments and options")
    return decoded


def _large_envelope(body: bytes) -> list[Any]:
    begins, ends = _BEGINS.match(body), _ENDS.search(body, max(0, len(body) - MAX_END_BYTES))
    if begins is None or ends is None:
        raise Malformed("the body is large, and no signed call")
    text = parsed(body[begins.end() : ends.start()], len(body), "the text of the call is")
    return [text, ends[1][1:-1].decode()]


def told(data: bytes) -> Told:
    """Return a message of a fanout exchange, as kombu writes them. Raises Malformed."""
    message = parsed(data, 2 * MAX_TOLD_BYTES, "the message is")
    if type(message) is not dict:
        raise Malformed("the message is no object")
    headers, properties, body = (message.get(name) for name in ("headers", "properties", "body"))
    if type(headers) is not dict or type(properties) is not dict or type(body) is not str:
        raise Malformed("the message has no headers, properties or body")
    if (message.get("content-type"), message.get("content-encoding")) != (CONTENT_TYPE, CONTENT_ENCODING):
        raise Malformed("the message is of another content type or encoding")
    check_told(headers)
    try:
        raw = b64decode(body, validate=True) if properties.get("body_encoding") == "base64" else body.encode()
    except ValueError:
        raise Malformed("the body is not base64") from None
    place = properties.get("delivery_info")
    exchange, routing_key = (
        (place.get(name) for name in ("exchange", "routing_key")) if type(place) is dict else ("", "")
    )
    return Told(raw, parsed(raw, MAX_TOLD_BYTES, "the body is"), headers, _text(exchange), _text(routing_key))


def check_told(headers: Mapping[str, Any]) -> None:
    """Raises Malformed for headers of what is no task that Celery's mailboxes would stumble over."""
    if headers.get("compression"):
        raise Malformed("compressed")
    clock, ticket, expires = (headers.get(name) for name in ("clock", "ticket", "expires"))
    if type(clock or 0) is not int or type(expires or 0) not in (int, float) or type(ticket or "") is not str:
        raise Malformed("clock, ticket or expires is not what Celery expects")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
