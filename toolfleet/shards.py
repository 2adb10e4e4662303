"""More than one Redis: shards by name, and to which of them an id belongs. Pure.

A run's id begins with the name of its shard, `b~9f8a2c51d03e4b67`, and with it the ids of its calls, of its agents'
runs and of its handles. So whatever is asked about is found without a directory, and no script ever needs two servers.
Ids without a name are those from before there were shards: they belong to the first.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self

SEPARATOR: Final = "~"
"""Between a shard's name and the rest of an id. It is in no id that we make up, and needs no escape in a URL."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,7}")
_ENTRY: Final = re.compile(r"(?P<name>[^=*\s]+)(?:\*(?P<weight>[^=]*))?=(?P<url>\S+)")

MAX_WEIGHT: Final = 1000

FORM: Final = "names and URLs with spaces between them, `a=redis://one:6379/0 b=redis://two:6379/0`"


class Shard(NamedTuple):
    """One Redis of several."""

    name: str
    url: str
    weight: int = 1
    """How many of the new runs it gets, against the others."""


class Shards:
    """The shards of a fleet in their order, of which the first has the ids without a name."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._by_name: Mapping[str, Shard] = {shard.name: shard for shard in shards}

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `a=redis://… b*2=redis://…`; "" is no shard. Raises ValueError."""
        found = [_shard(entry) for entry in text.split()]
        for what, values in {"name": [each.name for each in found], "URL": [each.url for each in found]}.items():
            if len(set(values)) != len(values):
                raise ValueError(f"two shards have one {what}: each is a server, or a database, of its own")
        return cls(found)

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in their order."""
        return tuple(self._by_name)

    @property
    def first(self) -> str:
        """The shard of ids that name none."""
        return self.names[0]

    def get(self, name: str) -> Shard | None:
        """The shard of this name; None if there is none."""
        return self._by_name.get(name)

    def named_by(self, id_: str) -> str:
        """The name of the shard that an id belongs to, which may be none of these."""
        name, separator, _ = id_.partition(SEPARATOR)
        return name if separator else self.first


def key_of(shard: str, secret: str) -> str:
    """The secret with which a shard other than the first signs.

    Each has its own: what is copied from one server to another, by whoever can write there, is believed by nobody, so
    that no call runs a second time on another shard.
    """
    return hmac.new(secret.encode(), b"toolfleet.shard\0" + shard.encode(), hashlib.sha256).hexdigest()


def _shard(entry: str) -> Shard:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError(f"{_without_password(entry)!r} is no shard: give {FORM}")
    name, weight = match["name"], match["weight"]
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a shard: 1 to 8 small letters, digits and hyphens")
    if weight is not None and not (weight.isdecimal() and weight.isascii() and 1 <= int(weight[:5]) <= MAX_WEIGHT):
        raise ValueError(f"{name}*{weight}: a weight is a number from 1 to {MAX_WEIGHT}")
    return Shard(name, match["url"], int(weight or 1))


def _without_password(entry: str) -> str:
    return re.sub(r"//.*@", "//", entry)
