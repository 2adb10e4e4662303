"""What processes send to a server, as the server tells it, read by the manifest of the scripts."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from toolfleet.scripts import CONTRACT, manifest, wire_script
from toolfleet.wire import MAC_HEX_CHARS

WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
KEYS = json.loads(CONTRACT.joinpath("keys.json").read_text("utf-8"))
PLACE = re.compile(r"\\\{\w+\\\}")
Words = list[bytes]


class Unlike(AssertionError):
    """What was sent is not what the manifest says."""


def scripts_by_sha() -> dict[str, str]:
    return {hashlib.sha1(wire_script(name).encode()).hexdigest(): name for name in manifest()["scripts"]}


@contextmanager
def listening(client: redis.Redis) -> Iterator[list[Words]]:
    """Within the block, what anybody runs of scripts: SHA, keys and arguments."""
    heard: list[Words] = []
    with client.monitor() as monitor:
        thread = threading.Thread(target=_hear, args=(monitor.connection, heard))
        thread.start()
        try:
            yield heard
        finally:
            client.echo("that is all")
            thread.join()


def _hear(connection: Any, heard: list[Words]) -> None:
    while b'"ECHO" "that is all"' not in (line := connection.read_response(disable_decoding=True)):
        words = [codecs.escape_decode(word)[0] for word in WORD.findall(line)]
        if words[0].upper() == b"EVALSHA":
            heard.append(words[1:])


def check(sent: Words) -> str | None:
    """Which script of the contract was run. None for another one; raises Unlike where it was run otherwise."""
    sha, count, *rest = sent
    name = scripts_by_sha().get(sha.decode())
    if name is None:
        return None
    script = manifest()["scripts"][name]
    keys, arguments = rest[: int(count)], rest[int(count) :]
    for said, words in ((script["keys"], keys), (script["argv"], arguments)):
        left = _read(said, list(words), {}, is_last=True)
        if left:
            raise Unlike(f"{name}: {left} is more than the manifest says")
    return name


def _read(said: list[Any], words: Words, counts: dict[str, int], *, is_last: bool) -> Words:
    """Read what the manifest says, and return what is left."""
    for position, item in enumerate(said):
        if "each" not in item:
            if not words:
                raise Unlike(f"{item['name']} is missing")
            word = words.pop(0)
            _must_be(item, word)
            if item.get("type") == "count":
                counts[item["name"]] = int(word or 0)
        elif "times" in item:
            for _ in range(counts[item["times"]]):
                words = _read(item["of"], words, counts, is_last=False)
        else:
            assert is_last, "only the last may go on to the end"
            assert position == len(said) - 1, "only the last may go on to the end"
            while words:
                words = _read(item["of"], words, counts, is_last=False)
    return words


def _must_be(item: dict[str, Any], word: bytes) -> None:
    if not word and item.get("may_be_empty"):
        return
    kind = item.get("type", "key")
    text = word.decode("utf-8", "surrogateescape")
    is_so = {
        "key": lambda: re.fullmatch(_pattern(item), text),
        "prefix": lambda: re.fullmatch(_pattern(item, is_prefix=True), text),
        "constant": lambda: text == item["value"],
        "integer": lambda: re.fullmatch(r"-?\d+", text),
        "count": text.isdecimal,
        "number": lambda: float(text) is not None,
        "json": lambda: json.loads(text) is not None,
        "sealed": lambda: re.fullmatch(rb"[0-9a-f]{%d}.+" % MAC_HEX_CHARS, word, re.DOTALL),
        "text": lambda: bool(text),
        "bytes": lambda: True,
    }[kind]
    if not is_so():
        raise Unlike(f"{item['name']} is to be a {kind}, and is {word!r}")


def _pattern(item: dict[str, Any], *, is_prefix: bool = False) -> str:
    rest = KEYS[item["key"]]["pattern"].removeprefix("{namespace}")
    if is_prefix:
        rest = rest.partition("{")[0]
    return r"[\w-]+" + PLACE.sub(".*", re.escape(rest))
