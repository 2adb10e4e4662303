"""Pages of the runs of all shards: where each shard's next page begins, and which of their runs come first. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, unquote

from toolfleet.orchestrator.errors import BadCursor
from toolfleet.shards import NAME

Json = dict[str, Any]

FORM: Final = re.compile(r"\d{1,3}_(.*)", re.DOTALL)
PLACE: Final = re.compile(rf"({NAME.pattern})=(\S{{0,1000}})")


class Places(NamedTuple):
    """Where the next page of each shard begins; "" at its newest run. Shards without more runs are not in it."""

    by_shard: Mapping[str, str]

    @classmethod
    def read(cls, text: str, shards: tuple[str, ...]) -> Self:
        """Read a cursor; "" is the beginning of all. Raises BadCursor."""
        if not text:
            return cls(dict.fromkeys(shards, ""))
        form = FORM.fullmatch(text)
        places = [PLACE.fullmatch(place) for place in form[1].split(" ")] if form else [None]
        if None in places or not {place[1] for place in places if place} <= set(shards):
            raise BadCursor("this cursor was not given out here: begin without one")
        return cls({place[1]: unquote(place[2]) for place in places if place})

    def written(self) -> str | None:
        """Return it as clients are given it; None where no shard has more."""
        places = " ".join(f"{name}={quote(place)}" for name, place in self.by_shard.items())
        return f"{len(self.by_shard)}_{places}" if places else None


def newest_of(pages: Mapping[str, Mapping[str, Any]], limit: int) -> list[tuple[str, Json]]:
    """Return so many of the runs of these pages, the newest first, each with its shard.

    Behind the end of a page that is not its shard's last nothing is taken: newer ones may stand on its next.
    """
    lists = ([(name, run) for run in page["runs"]] for name, page in pages.items())
    newest_first = list(heapq.merge(*lists, key=lambda item: -float(item[1]["started_unix_s"])))
    left = {name: len(page["runs"]) for name, page in pages.items()}
    taken: list[tuple[str, Json]] = []
    for name, run in newest_first:
        if len(taken) == limit or any(not left[other] and page["before"] for other, page in pages.items()):
            break
        taken.append((name, run))
        left[name] -= 1
    return taken
