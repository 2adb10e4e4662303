"""Values that no honest party writes: by chance, from pieces that have hurt some reader before."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

SCALARS: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**40, 1e308, -0.0, 0.1),
    *("", "x", "io", "\x00", "☃" * 50, "\ud800", "../..", "%s%n", "{}", "[]", "null", "@returned", "9" * 5000),
]

TYPED = [
    {"__type__": kind, "__value__": value}
    for kind in ("decimal", "datetime", "date", "time", "uuid", "bytes", "base64", "nobody's")
    for value in ("x", "", 5, None, [], {})
]
"""What kombu's JSON makes objects of, or dies of."""

NAMES = [
    *("task", "id", "args", "kwargs", "claim", "claimed_s", "first", "earlier", "deliveries", "timelimit", "eta"),
    *("expires", "retries", "stamps", "chord", "callbacks", "compression", "delivery_info", "consumer_tag", "stream"),
    *("method", "arguments", "destination", "pattern", "matcher", "reply_to", "ticket", "exchange", "routing_key"),
    *("headers", "properties", "body", "content-type", "content-encoding", "body_encoding", "delivery_tag", "priority"),
    *("v", "worker", "tools", "proofs", "lanes", "type", "kind", "text", "mac", "clock", "contract", "passed_unix_s"),
]


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return something JSON can say."""
    pick = chance.random()
    if depth > 3 or pick < 0.45:
        return chance.choice(SCALARS)
    if pick < 0.6:
        return chance.choice(TYPED)
    if pick < 0.8:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(NAMES): value(chance, depth + 1) for _ in range(chance.randrange(4))}


def bent(chance: random.Random, honest: Any) -> Any:
    """Return an honest value with something in it replaced, dropped or added."""
    if isinstance(honest, dict) and honest and chance.random() < 0.85:
        name = chance.choice(list(honest))
        what = chance.random()
        if what < 0.15:
            return {key: item for key, item in honest.items() if key != name}
        if what < 0.3:
            return {**honest, chance.choice(NAMES): value(chance)}
        return {**honest, name: bent(chance, honest[name])}
    if isinstance(honest, list) and honest and chance.random() < 0.85:
        at = chance.randrange(len(honest))
        return [*honest[:at], bent(chance, honest[at]), *honest[at + 1 :]]
    return value(chance)


def text(chance: random.Random, honest: Any) -> bytes:
    """Return the text of a bent value, or bytes that are no JSON at all."""
    pick = chance.random()
    if pick < 0.8:
        return json.dumps(bent(chance, honest)).encode()
    said = json.dumps(honest).encode()
    if pick < 0.9:
        at = chance.randrange(len(said))
        return (
            said[:at] + chance.choice([b"", b"\x00", b"\xff\xfe", b"\\u0000", said[:20], b"]", b'"']) + said[at + 1 :]
        )
    return chance.choice(
        [
            b"",
            b"[" * 5000,
            b'{"a":' * 2000,
            chance.randbytes(40),
            b"1e999",
            b"NaN",
            zlib.compress(bytes(100_000)),
            b"[]",
        ]
    )


def mapping(chance: random.Random, honest: dict[str, Any]) -> dict[str | bytes, bytes]:
    """Return the fields of an entry or a hash, some of them bent or missing; never none at all."""
    fields: dict[str | bytes, bytes] = {
        name: text(chance, said) if chance.random() < 0.5 else _plain(said) for name, said in honest.items()
    }
    if chance.random() < 0.15:
        fields.pop(chance.choice(list(fields)))
    if chance.random() < 0.25:
        fields[chance.choice(["id", "claim", "first", "earlier", "unserved", "held_as", *NAMES])] = _word(chance)
    return fields or {"x": b""}


def _plain(said: Any) -> bytes:
    return said.encode() if isinstance(said, str) else json.dumps(said).encode()


def _word(chance: random.Random) -> bytes:
    return chance.choice([b"", b"nan", b"1e300", b"-5", b"9" * 5000, b"0x10", b"1-0", b"\xff", chance.randbytes(8)])
