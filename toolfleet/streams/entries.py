"""Messages as stream entries, there and back.

What comes back from Redis is read by `unbelieved.py` alone: a malformed entry raises `Malformed`, never anything else,
so that no entry can end a worker, and kombu decodes nothing. The keys of an entry: `b` body, `h` headers, `p`
properties; for a task its `id`, and for a call that must be claimed `claim` (seconds): the fetch script reads them
without parsing JSON. A message that was carried from one stream to another has `first`, the id of its first entry, and
`earlier`, how many of its deliveries before that count. What waited in a room until nobody wanted it has `over`, why:
it has passed no limits and is only to be ended. Like a cancel mark that is not signed: who writes to Redis can call a
call off.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple, Self

import orjson
from kombu.exceptions import ContentDisallowed
from kombu.transport import virtual
from kombu.utils import json as kombu_json

from toolfleet.streams.unbelieved import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    MAX_HEAD_BYTES,
    MAX_TOLD_BYTES,
    Malformed,
    Told,
    check_told,
    parsed,
    parsed_object,
    task_body,
)

MAX_EARLIER: Final = 1_000_000
"""Deliveries that a carried message may claim to have behind it; the number goes into results."""


class DeliveredEntry(NamedTuple):
    """One entry as it was read: the names of its fields, and their values. `deliveries` is 1 the first time.

    `cancelled` says that its call was cancelled before the read, `returned` that another consumer had it before.
    """

    stream: str
    entry_id: str
    deliveries: int
    claimed: bool
    names: list[bytes]
    values: list[bytes]
    cancelled: bool = False
    returned: bool = False

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The fields by name."""
        return dict(zip(self.names, self.values, strict=False))


class StreamMessage(virtual.Message):  # type: ignore[misc]  # kombu ships no types
    """A message from a stream or from a fanout exchange, checked and parsed before it is made."""

    def __init__(self, told: Told, channel: Any = None) -> None:
        """Make a message from a fanout exchange. kombu's own would decompress and decode whatever it is told to."""
        self._set(channel, f"fanout-{next(_numbers)}", told.body, told.decoded, told.headers)
        self.delivery_info = {"exchange": told.exchange, "routing_key": told.routing_key}
        self.properties = {"delivery_info": self.delivery_info}

    @classmethod
    def from_delivery(cls, channel: Any, delivery: DeliveredEntry, consumer: str, max_bytes: int) -> Self:
        """Check and decode an entry. Raises Malformed."""
        fields = delivery.fields
        body, headers, properties = _parts(fields, max_bytes)
        decoded = _decoded(body, headers)
        first_id, earlier = _origin(fields)
        deliveries = delivery.deliveries + earlier
        headers["deliveries"] = deliveries
        headers["claimed_s"] = _claimed_s(delivery, fields, headers)
        over = fields.get(b"over")
        headers["cancelled"] = delivery.cancelled or over == b"cancelled"
        headers["expired"] = over == b"expired"
        headers["returned"] = delivery.returned

        message = cls.__new__(cls)
        message._set(channel, tag_of(delivery.stream, delivery.entry_id), body, decoded, headers)
        message.properties = properties
        message.delivery_info = properties["delivery_info"] = properties["delivery_info"] | {
            "stream": delivery.stream,
            "entry_id": delivery.entry_id,
            "consumer": consumer,
            "redelivered": deliveries > 1,
        }
        if first_id:
            message.delivery_info["first_id"] = first_id
        if len(fields.get(b"gates", b"")) in range(1, MAX_GATES_BYTES):
            message.delivery_info["gates"] = fields[b"gates"].decode(errors="replace")
        return message

    def _set(self, channel: Any, tag: str, body: bytes, decoded: Any, headers: dict[str, Any]) -> None:
        self.errors: list[Any] = []
        self.channel = channel
        self.delivery_tag = tag
        self.content_type = CONTENT_TYPE
        self.content_encoding = CONTENT_ENCODING
        self.headers = headers
        self.body = body
        self.accept = None
        self._decoded_cache = decoded
        self._state = "RECEIVED"

    def decode(self) -> Any:
        """Return the body as it was parsed. kombu would parse an empty one again, and with types of its own."""
        return self._decoded_cache

    @property
    def payload(self) -> Any:
        """The same."""
        return self._decoded_cache


_numbers: Final = count(1)


def tag_of(stream: str, entry_id: str) -> str:
    """Return the delivery tag of an entry: the same in each of its deliveries."""
    return f"{stream}|{entry_id}"


def entry_of(tag: str) -> tuple[str, str]:
    """Return the stream and the entry id of a delivery tag."""
    stream, _, entry_id = tag.rpartition("|")
    return stream, entry_id


def claim_of(delivery: DeliveredEntry) -> tuple[str, int] | None:
    """Return call id and seconds for the claim of a delivery; None when there is nothing to claim."""
    if delivery.claimed or b"claim" not in delivery.names:
        return None
    fields = delivery.fields
    try:
        call_id, ttl_s = fields[b"id"].decode(), int(fields[b"claim"])
    except (KeyError, ValueError):
        return None  # malformed, as its reader will find
    return (call_id, ttl_s) if 0 < ttl_s < MAX_CLAIM_S else None


MAX_CLAIM_S: Final = 10**9


def _origin(fields: Mapping[bytes, bytes]) -> tuple[str, int]:
    """Return the first entry's id of a message that was carried here ("" otherwise), and its earlier deliveries."""
    try:
        first, earlier = fields.get(b"first", b"").decode(), int(fields.get(b"earlier", 0))
    except ValueError:
        raise Malformed("it does not say where it came from") from None
    if earlier > MAX_EARLIER or len(first) > MAX_ID_CHARS:
        raise Malformed("it does not say where it came from")
    return first, max(0, earlier)


MAX_ID_CHARS: Final = 64

MAX_GATES_BYTES: Final = 65536
"""Longer than the limits of any tool of ours; a stranger's entry is run without more of them."""


def _claimed_s(delivery: DeliveredEntry, fields: Mapping[bytes, bytes], headers: Mapping[str, Any]) -> float:
    """Return for how many seconds the transport has claimed the call; 0 if it has not.

    Raises Malformed where it has claimed another call than the one that would run.
    """
    if b"id" in fields and fields[b"id"] != str(headers.get("id", "")).encode():
        raise Malformed("the entry is for another call than its headers")
    if not delivery.claimed:
        return 0.0
    try:
        return float(fields.get(b"claim", 0))
    except ValueError:
        return 0.0


def encode(message: Mapping[str, Any], headers: Mapping[str, Any], max_bytes: int) -> list[str | bytes]:
    """Return the fields of an entry, flat, as XADD takes them.

    Raises ContentDisallowed for anything but plain JSON, ValueError for what is larger than `max_bytes`.
    """
    body = message["body"]
    _refuse_what_no_worker_reads(message, headers)
    if len(body) > max_bytes:
        raise ValueError(f"the message has {len(body)} bytes; max_message_bytes allows {max_bytes}")
    properties = {name: value for name, value in message["properties"].items() if name not in _RECREATED}
    fields = ["b", body, "h", dumps(headers), "p", dumps(properties)]
    if task_id := headers.get("id"):
        fields += ["id", str(task_id)]
        if claim := headers.get("claim"):
            fields += ["claim", str(claim)]
    return fields


def dumps(value: Any) -> bytes:
    """Return a value as JSON, by orjson where it can, by kombu where a value needs kombu's conversions."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return kombu_json.dumps(value).encode()  # type: ignore[no-any-return]  # kombu ships no types


_RECREATED: Final = frozenset({"body_encoding", "delivery_tag"})
"""Properties that say nothing on a stream: bodies are raw, tags are made at delivery."""


def _refuse_what_no_worker_reads(message: Mapping[str, Any], headers: Mapping[str, Any]) -> None:
    if message["content-type"] != CONTENT_TYPE:
        raise ContentDisallowed(
            f"the stream transport carries {CONTENT_TYPE} only, not {message['content-type']}: use the json serializer"
        )
    if headers.get("compression"):
        raise ContentDisallowed("the stream transport carries no compressed messages: switch compression off")
    if message["properties"].get("expiration") is not None:
        raise NotImplementedError(
            "the stream transport expires no messages: use Celery's `expires`, which workers check"
        )


def _parts(fields: Mapping[bytes, bytes], max_bytes: int) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    try:
        body, headers, properties = fields[b"b"], fields[b"h"], fields[b"p"]
    except KeyError:
        raise Malformed("a field is missing") from None
    if len(body) > max_bytes:
        raise Malformed("larger than max_message_bytes")
    head = parsed_object(headers, "the headers are")
    if head.get("compression"):
        raise Malformed("compressed")
    if len(properties) > MAX_HEAD_BYTES:
        raise Malformed("the properties are larger than any of ours")
    return body, head, known_properties(properties).copy()


@lru_cache(maxsize=64)  # those of all honest messages of a queue are the same text
def known_properties(text: bytes) -> dict[str, Any]:
    """Return what is used of a message's properties; a stranger's consumer tag, for instance, is not."""
    properties = parsed_object(text, "the properties are")
    place = properties.get("delivery_info", {})
    if type(place) is not dict:
        raise Malformed("delivery_info is not an object")
    _check(properties, _PROPERTIES)
    _check(place, _PLACE)
    known: dict[str, Any] = {name: properties[name] for name in _PROPERTIES if name in properties}
    known["delivery_info"] = {name: place.get(name) or "" for name in _PLACE}
    return known


def _decoded(body: bytes, headers: Mapping[str, Any]) -> Any:
    if "task" in headers:
        _check_task(headers)
        return task_body(body)
    check_told(headers)
    decoded = parsed(body, MAX_TOLD_BYTES, "the body is")
    if type(decoded) is dict and "task" in decoded:
        raise Malformed("a task of Celery's message protocol 1")
    return decoded


_PROPERTIES: Final = {"correlation_id": str, "reply_to": str, "priority": int}

_PLACE: Final = {"exchange": str, "routing_key": str}

_TASK: Final = {
    "task": str,
    "id": str,
    "args": list,
    "kwargs": dict,
    "timelimit": list,
    "retries": int,
    "eta": str,
    "expires": str,
    "shadow": str,
    "root_id": str,
    "parent_id": str,
    "group": str,
    "argsrepr": str,
    "kwargsrepr": str,
    "stamps": dict,
    "stamped_headers": list,
    "headers": dict,
}
"""What Celery's strategy and request take for granted, and die of when it is not so. All but two may be null."""


def _check_task(record: Mapping[str, Any]) -> None:
    _check(record, _TASK)
    if not record.get("id") or not record["task"]:
        raise Malformed("the task has no id or no name")
    limits = record.get("timelimit") or (None, None)
    if len(limits) != 2 or any(limit is not None and type(limit) not in (int, float) for limit in limits):
        raise Malformed("timelimit is not what Celery expects")


def _check(record: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for name, value in record.items():
        if value is not None and name in types and type(value) is not types[name]:
            raise Malformed(f"{name} is not what Celery expects")
