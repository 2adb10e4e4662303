"""Messages as stream entries, there and back.

What comes back from Redis is believed only after it was checked: a malformed entry raises `Malformed`, never anything
else, so that no entry can end a worker. The keys of an entry: `b` body, `h` headers, `p` properties; for a task its
`id`, and for a call that must be claimed `claim` (seconds): the fetch script reads them without parsing JSON. A message
that was carried from one stream to another has `first`, the id of its first entry, which stands in its claim, and
`earlier`, how many of its deliveries before that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import orjson
from kombu.exceptions import ContentDisallowed
from kombu.transport import virtual
from kombu.utils import json as kombu_json

CONTENT_TYPE: Final = "application/json"
CONTENT_ENCODING: Final = "utf-8"

Fields = list[bytes]


class Malformed(ValueError):
    """An entry that no worker may be given; the text says why, and is the same for all entries of one kind."""


class DeliveredEntry(NamedTuple):
    """One entry as it was read. `deliveries` is 1 the first time.

    `cancelled` says that its call was cancelled before the read, `returned` that another consumer had it before.
    """

    stream: str
    entry_id: str
    deliveries: int
    claimed: bool
    fields: Fields
    cancelled: bool = False
    returned: bool = False


class StreamMessage(virtual.Message):  # type: ignore[misc]  # kombu ships no types
    """A message from a stream, or (made in the inherited way) from a fanout exchange."""

    @classmethod
    def from_delivery(cls, channel: Any, delivery: DeliveredEntry, consumer: str, max_bytes: int) -> Self:
        """Check and decode an entry. Raises Malformed."""
        body, headers, properties = _parts(delivery.fields, max_bytes)
        decoded = _decoded(body, headers)
        delivery_info = properties["delivery_info"]
        earlier = 0
        if b"first" in delivery.fields:
            delivery_info["first_id"], earlier = origin_of(delivery.fields)
        deliveries = delivery.deliveries + earlier
        headers["deliveries"] = deliveries
        headers["claimed"] = delivery.claimed
        headers["cancelled"] = delivery.cancelled
        headers["returned"] = delivery.returned
        delivery_info["stream"] = delivery.stream
        delivery_info["entry_id"] = delivery.entry_id
        delivery_info["consumer"] = consumer
        delivery_info["redelivered"] = deliveries > 1

        # kombu's own __init__ would copy, decompress and re-encode; every attribute it sets is set here.
        message = cls.__new__(cls)
        message.errors = []
        message.channel = channel
        message.delivery_tag = tag_of(delivery.stream, delivery.entry_id)
        message.content_type = CONTENT_TYPE
        message.content_encoding = CONTENT_ENCODING
        message.delivery_info = delivery_info
        message.headers = headers
        message.properties = properties
        message.body = body
        message.accept = None
        message._decoded_cache = decoded
        message._state = "RECEIVED"
        return message


def tag_of(stream: str, entry_id: str) -> str:
    """Return the delivery tag of an entry: the same in each of its deliveries."""
    return f"{stream}|{entry_id}"


def entry_of(tag: str) -> tuple[str, str]:
    """Return the stream and the entry id of a delivery tag."""
    stream, _, entry_id = tag.rpartition("|")
    return stream, entry_id


def origin_of(fields: Fields) -> tuple[str, int]:
    """Return the first entry's id of a message that was carried here ("" otherwise), and its earlier deliveries.

    Raises Malformed.
    """
    by_name = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        return by_name.get(b"first", b"").decode(), max(0, int(by_name.get(b"earlier", 0)))
    except ValueError:
        raise Malformed("it does not say where it came from") from None


def claim_of(delivery: DeliveredEntry) -> tuple[str, int, str] | None:
    """Return call id, seconds and claimant for the claim of a delivery; None when there is nothing to claim."""
    fields = delivery.fields
    if delivery.claimed or b"claim" not in fields:
        return None
    by_name = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        call_id, ttl_s = by_name[b"id"].decode(), int(by_name[b"claim"])
        claimant = by_name.get(b"first", delivery.entry_id.encode()).decode()
    except (KeyError, ValueError):
        return None  # malformed, as its reader will find
    return (call_id, ttl_s, claimant) if ttl_s > 0 else None


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


def _parts(fields: Fields, max_bytes: int) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    by_name = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        body, headers, properties = by_name[b"b"], orjson.loads(by_name[b"h"]), orjson.loads(by_name[b"p"])
    except KeyError:
        raise Malformed("a field is missing") from None
    except orjson.JSONDecodeError:
        raise Malformed("headers or properties are not JSON") from None
    if len(body) > max_bytes:
        raise Malformed("larger than max_message_bytes")
    if type(headers) is not dict or type(properties) is not dict:
        raise Malformed("headers or properties are not objects")
    if headers.get("compression"):
        raise Malformed("compressed")
    if type(properties.setdefault("delivery_info", {})) is not dict:
        raise Malformed("delivery_info is not an object")
    _check(properties, _PROPERTIES)
    return body, headers, properties


def _decoded(body: bytes, headers: dict[str, Any]) -> Any:
    """Return the parsed body, for kombu to find when it is asked for; None leaves kombu to parse its typed values."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Malformed("the body is not JSON") from None
    if "task" in headers:
        _check_task(headers)
        if type(decoded) is not list or [type(part) for part in decoded] != _CALL:
            raise Malformed("the body is not arguments, keyword arguments and options")
    elif type(decoded) is dict and "task" in decoded:
        _check_task(decoded)  # Celery's message protocol 1
    return None if b'"__type__"' in body else decoded


_CALL: Final = [list, dict, dict]

_PROPERTIES: Final = {"correlation_id": str, "reply_to": str}

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
