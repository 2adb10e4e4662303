"""Makes `wire/v1/vectors/` anew: `python -m tests.wire.make_vectors`.

Signs with the standard library's HMAC and not with Toolfleet's, so that the vectors are a second opinion of it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "toolfleet" / "wire_v1" / "vectors"
SECRET = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
OLD, STRANGE = "an older secret of the fleet, of 37 B", "a secret that is of another fleet, 40 B"
NOW_UNIX_S = 1_800_000_000
BIG = 9007199254740993
Vector = dict[str, Any]


def mac(purpose: str, text: str, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), purpose.encode() + text.encode(), hashlib.sha256).hexdigest()


def compact(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def call(**fields: Any) -> dict[str, Any]:
    """A call with no more than it needs, and these."""
    return {
        "v": 1,
        "call_id": "x-0123.1.0",
        "run_id": "x-0123",
        "tool": "echo",
        "arguments": '{"text":"hello"}',
        "deadline_unix_s": NOW_UNIX_S + 60,
        "reply_to": "client-1",
        **fields,
    }


def call_vector(name: str, record: Any, answer: Any, *, secret: str = SECRET, said: str | None = None) -> Vector:
    """`said` is what arrives in the place of what was signed."""
    text = record if isinstance(record, str) else compact(record)
    return {
        "name": name,
        "text": text if said is None else said,
        "mac": mac("toolfleet.call\0", text, secret),
        "answer": answer,
    }


ACCEPT = {"accept": True}


def refuse(reason: str) -> dict[str, Any]:
    return {"accept": False, "reason": reason}


def calls() -> list[Vector]:
    good = compact(call())
    nested = {"a": [{"b": [[], {}, None, True, 0.1, -0.0, 1e300]}]}
    return [
        call_vector("as small as can be", call(), ACCEPT),
        call_vector(
            "fields in another order, with spaces", json.dumps(dict(reversed(call().items())), indent=1), ACCEPT
        ),
        call_vector("escaped where it need not be", good.replace("echo", "\\u0065cho"), ACCEPT),
        call_vector("unicode", call(arguments=compact({"text": "žluťoučký 🦄 \u2028 \u0000"})), ACCEPT),
        call_vector("a whole number beyond 2^53", call(arguments=compact({"n": BIG})), ACCEPT),
        call_vector("whole numbers of any length", call(arguments=compact({"n": 10**40, "m": -(2**63) - 1})), ACCEPT),
        call_vector("floating numbers", call(context={"f": [0.1, 1e-9, 1.5e300, 1.0]}), ACCEPT),
        call_vector("nested", call(context=nested, state=nested), ACCEPT),
        call_vector("empty names and texts", call(context={"": {"": ""}}, arguments=""), ACCEPT),
        call_vector("a field that is not known", call(of_a_newer_minor_version={"x": [1]}), ACCEPT),
        call_vector("with the secret before", call(), ACCEPT, secret=OLD),
        call_vector("with another secret", call(), refuse("signature"), secret=STRANGE),
        call_vector("altered", call(), refuse("signature"), said=good.replace("hello", "jello")),
        call_vector("with a space more", call(), refuse("signature"), said=good + " "),
        call_vector("of the next major version", call(v=2), refuse("version")),
        call_vector("without a tool", {k: v for k, v in call().items() if k != "tool"}, refuse("shape")),
        call_vector("no JSON", "{", refuse("shape")),
        call_vector("larger than allowed", call(arguments="x" * 2048), refuse("size")),
    ]


def signature(name: str, secret: str, purpose: str, text: str) -> Vector:
    return {"name": name, "secret": secret, "purpose": purpose, "text": text, "mac": mac(purpose, text, secret)}


def signatures() -> list[Vector]:
    """The bytes alone: what is hashed with what."""
    shard = hmac.new(SECRET.encode(), b"toolfleet.shard\0east", hashlib.sha256).hexdigest()
    return [
        signature("a call", SECRET, "toolfleet.call\0", "{}"),
        signature("nothing at all", SECRET, "toolfleet.call\0", ""),
        signature("without a secret", "", "toolfleet.call\0", "{}"),
        signature("with a secret of letters beyond ASCII", "geheim, aber lang genug: äöü ☃", "toolfleet.call\0", "{}"),
        signature("with a secret longer than SHA-256's block", "k" * 100, "toolfleet.call\0", "{}"),
        signature("a result of a call", SECRET, "toolfleet.result\0x-0123.1.0\0", "{}"),
        signature("a result of a call with a name beyond ASCII", SECRET, "toolfleet.result\0ß-☃.1.0\0", "{}"),
        signature("a worker's proof", SECRET, "toolfleet.member\0", "io@host"),
        {**signature("a call of the shard `east`", shard, "toolfleet.call\0", "{}"), "secret_of_the_fleet": SECRET},
    ]


def sealed(
    name: str, kind: str, record: Any, answer: Any, *, of: str = "x-0123.1.0", claims: str = "", secret: str = SECRET
) -> Vector:
    """A record with its MAC before it. `claims`: whose it is said to be, where that is not true."""
    text = record if isinstance(record, str) else compact(record)
    said = mac(f"toolfleet.{kind}\0{of}\0", text, secret) + text
    whose = {"worker" if kind == "announcement" else "call_id": claims or of}
    return {"name": name, "kind": kind, **whose, "sealed": said, "answer": answer}


ATTEMPT = {"worker": "ts@host", "number": 1, "began_unix_s": NOW_UNIX_S, "ended_unix_s": NOW_UNIX_S + 0.25}
KINDS = [
    *("bad_arguments", "unknown_tool", "denied", "error", "timed_out", "expired", "crashed", "cancelled", "in_doubt"),
    *("limit", "rolled_back"),
]


def records() -> list[Vector]:
    """Results and all else that is sealed with its MAC before it."""
    returned = {"type": "returned", "content": "hello"}
    failed = {"type": "failed", "kind": "error", "message": "no such row"}
    media = [{"media_type": "image/png", "size_bytes": 4, "data": "iVBORw=="}]
    whole = {**returned, "state": {"n": BIG}, "attributes": {"": []}, "media": media, "attempt": ATTEMPT}
    announced = {"worker": "ts@host", "pid": 1, "pool": "ts", "concurrency": 1, "queues": ["io"], "tools": []}
    announced["started_unix_s"] = NOW_UNIX_S
    at = f"{NOW_UNIX_S * 1000:015}"
    false = sealed("", "result", returned, refuse("signature"))
    true = false["sealed"]
    as_error = {**ACCEPT, "kind": "error"}
    other = {"of": "ts@host", "claims": "io@host"}
    return [
        sealed("returned", "result", returned, ACCEPT),
        sealed("returned, with all that there is", "result", whole, ACCEPT),
        sealed("fields in another order", "result", dict(reversed(returned.items())), ACCEPT),
        sealed("returned, in letters beyond ASCII", "result", {**returned, "content": "☃ 🦄 \u2028"}, ACCEPT),
        sealed("returned nothing", "result", {**returned, "content": ""}, ACCEPT),
        *(sealed(f"failed: {kind}", "result", {**failed, "kind": kind}, {**ACCEPT, "kind": kind}) for kind in KINDS),
        sealed("submitted", "result", {"type": "submitted", "handle": "h", "poll_after_s": 5}, ACCEPT),
        sealed("of a kind that only a newer version knows", "result", {**failed, "kind": "bored"}, as_error),
        sealed("of a type that is not known", "result", {"type": "danced"}, refuse("shape")),
        sealed("failed without a message", "result", {"type": "failed", "kind": "error"}, refuse("shape")),
        sealed("with a field that is not known", "result", {**returned, "mood": {"x": 1}}, ACCEPT),
        sealed("of another call", "result", returned, refuse("signature"), claims="x-0123.1.1"),
        sealed("with the secret before", "result", returned, ACCEPT, secret=OLD),
        sealed("with another secret", "result", returned, refuse("signature"), secret=STRANGE),
        {**false, "name": "altered", "sealed": true.replace("hello", "jello")},
        {**false, "name": "with a MAC in capitals", "sealed": true[:64].upper() + true[64:]},
        {**false, "name": "cut off in the MAC", "sealed": true[:40]},
        {**false, "name": "a progress for a result", "sealed": sealed("", "progress", returned, None)["sealed"]},
        sealed("progress", "progress", {"type": "progress", "fraction": 0.5, "message": "half"}, ACCEPT),
        sealed("progress, a whole number", "progress", {"type": "progress", "fraction": 1}, ACCEPT),
        sealed("progress beyond the end", "progress", {"type": "progress", "fraction": 1.5}, refuse("shape")),
        sealed("a checkpoint", "checkpoint", {"row": BIG, "": None}, ACCEPT),
        sealed("a call is cancelled", "cancel", {}, ACCEPT),
        sealed("a call is cancelled, and something newer", "cancel", {"why": "☃"}, ACCEPT),
        sealed("another call is cancelled", "cancel", {}, refuse("signature"), claims="x-0123.1.1"),
        sealed("cancelled by a stranger", "cancel", {}, refuse("signature"), secret=STRANGE),
        {
            "name": "cancelled by nobody",
            "kind": "cancel",
            "call_id": "x-0123.1.0",
            "sealed": "1",
            "answer": refuse("signature"),
        },
        sealed("announcement", "announcement", at + compact(announced), ACCEPT, of="ts@host"),
        sealed("announcement of another worker", "announcement", at + compact(announced), refuse("signature"), **other),
        sealed("announcement without a moment", "announcement", compact(announced), refuse("shape"), of="ts@host"),
    ]


def delivery(name: str, answer: str, **facts: Any) -> Vector:
    """A message as it is read, and what becomes of it. `sent` has the fields of its entry."""
    given: dict[str, Any] = {"effect": "read_only", "deliveries": 1, "claimed": False, "cancelled": False}
    given |= {"serves": True, "digest": "0123456789ab", "claim_holder": None}
    given |= {name: facts.pop(name) for name in list(facts) if name in given}
    return {"name": name, **given, "fields": entry(**facts), "answer": answer}


def entry(
    record: Any = None, *, mac_of: str | None = None, body: str | None = None, headers: Any = None, **fields: str
) -> dict[str, str]:
    text = compact(call() if record is None else record)
    signed = mac("toolfleet.call\0", text) if mac_of is None else mac_of
    head = {"lang": "ts", "task": "echo", "id": "x-0123.1.0", "contract": ""} | (headers or {})
    made = {
        "b": compact([[text, signed], {}, {}]) if body is None else body,
        "h": compact({name: value for name, value in head.items() if value is not None}),
        "p": compact({"delivery_info": {"exchange": "", "routing_key": "io"}, "delivery_mode": 2, "priority": 3}),
        "id": "x-0123.1.0",
    } | fields
    return {name: value for name, value in made.items() if value != "(left out)"}


def deliveries() -> list[Vector]:
    once = {"effect": "once", "headers": {"claim": 660}, "claim": "660"}
    late = call(deadline_unix_s=NOW_UNIX_S - 1)
    huge = call(arguments=compact({"text": "x" * 3000}))
    return [
        delivery("the common call", "run"),
        delivery("a header that is not known", "run", headers={"of_next_year": {"x": 1}}),
        delivery("a field that is not known", "run", of_next_year="x"),
        delivery("a call with a field that is not known", "run", record=call(of_next_year=[1])),
        delivery("offered with this digest", "run", headers={"contract": "0123456789ab"}),
        delivery("offered with another digest", "pass_on", headers={"contract": "ba9876543210"}),
        delivery("a tool that is not here", "pass_on", serves=False),
        delivery("of the next major version", "pass_on", record=call(v=2)),
        delivery("of the next major version, in another shape", "pass_on", record=call(v=2, arguments={"text": 1})),
        delivery("of the next major version, by a stranger", "bury", record=call(v=2), mac_of="0" * 64),
        delivery("unsigned", "bury", mac_of=""),
        delivery("signed by a stranger", "bury", mac_of=mac("toolfleet.call\0", compact(call()), STRANGE)),
        delivery("signed, for another tool than the header says", "bury", headers={"task": "pay"}),
        delivery(
            "signed, for another call than the header says", "bury", headers={"id": "x-0123.1.1"}, id="x-0123.1.1"
        ),
        delivery("an entry for another call than its header says", "bury", id="x-0123.1.1"),
        delivery("larger than allowed", "bury", record=huge),
        delivery("without a body", "bury", b="(left out)"),
        delivery("a body that is no JSON", "bury", body="{"),
        delivery("a body that is no call", "bury", body="[[],{},{}]"),
        delivery("headers that are no object", "bury", h="[]"),
        delivery("headers without an id", "bury", headers={"id": None}),
        delivery("compressed", "bury", headers={"compression": "application/x-gzip"}),
        delivery("expired", "expired", record=late),
        delivery("expired as it waited", "expired", over="expired"),
        delivery("cancelled before it was read", "cancelled", cancelled=True),
        delivery("cancelled as it waited", "cancelled", over="cancelled"),
        delivery("an effect, claimed as it was read", "run", **once | {"claimed": True}),
        delivery("an effect, claimed for too short a time", "claim", **once | {"claimed": True, "claim": "10"}),
        delivery("an effect that is not claimed", "claim", **once),
        delivery("an effect, replayed", "drop", **once | {"claim_holder": "1-1"}),
        delivery("an effect that may have happened", "in_doubt", **once | {"deliveries": 2}),
        delivery("an effect that may have happened, moved", "in_doubt", **once, first="1-1", earlier="1"),
        delivery(
            "an effect as it was sent, and none any more", "in_doubt", **once | {"deliveries": 2, "effect": "read_only"}
        ),
        delivery("an effect that may have happened, and is late", "in_doubt", **once | {"deliveries": 2}, record=late),
        delivery("delivered again, and may be repeated", "run", deliveries=2, effect="idempotent"),
        delivery("its fifth delivery", "run", deliveries=5),
        delivery("its sixth delivery", "crashed", deliveries=6),
        delivery("more deliveries than anybody tries", "bury", deliveries=7),
    ]


def files() -> dict[str, Any]:
    """Each file's name, and what is to be in it."""
    fleet = {"secret": SECRET, "previous_secret": OLD}
    reads = {**fleet, "max_message_bytes": 2048}
    return {
        "signatures.json": {"vectors": signatures()},
        "calls.json": {**reads, "vectors": calls()},
        "records.json": {**fleet, "vectors": records()},
        "deliveries.json": {**reads, "now_unix_s": NOW_UNIX_S, "max_deliveries": 5, "vectors": deliveries()},
    }


def text_of(content: Any) -> str:
    # ASCII: what looks the same and is not is to be seen.
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(text_of(content))
