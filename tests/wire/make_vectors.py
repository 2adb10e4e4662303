"""Makes `wire/v1/vectors/` anew: `python -m tests.wire.make_vectors`.

Signs with the standard library's HMAC and not with Toolfleet's, so that the vectors are a second opinion of it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "wire" / "v1" / "vectors"
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
    ]


def files() -> dict[str, Any]:
    """Each file's name, and what is to be in it."""
    fleet = {"secret": SECRET, "previous_secret": OLD, "now_unix_s": NOW_UNIX_S}
    return {"calls.json": {**fleet, "vectors": calls()}}


def text_of(content: Any) -> str:
    # ASCII: what looks the same and is not is to be seen.
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(text_of(content))
