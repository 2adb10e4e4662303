"""For which shard a request is, as far as its method and its path say. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """Who answers a request."""

    OF_ID = "of an id"
    """The shard that the id in its path names."""
    NEW = "new"
    """A shard whose turn it is: something begins."""
    THREAD = "thread"
    """The shard of the interrupts that the body names, or the one on which a run of this name is, for good."""
    GOES_ON = "goes on"
    """The shard of the answer that the body names, or a shard whose turn it is."""
    MERGED = "merged"
    """All of them, and their answers are put together."""
    ARTIFACT = "artifact"
    """The shard that keeps it, which its id does not say."""
    FIRST = "first"
    """The first of the settings that is open."""
    NAMED = "named"
    """The one that the header names: what each shard has for itself, and nobody adds up."""
    WELL = "well"
    """This process."""


class Place(NamedTuple):
    """Who answers, and the id that says so."""

    kind: Kind
    id_: str = ""


LISTS: Final = "runs|find|overview|approvals|questions|handles|batches|schedules|workers|queues|tools|spending"

OF_ID: Final = "(?:v1/)?(?:runs|batches|schedules|questions)|v1/handles|calls|jobs"

PLACES: Final = (
    ("", re.compile(r"/healthz|/readyz"), Kind.WELL),
    ("GET", re.compile(r"/batches/live"), Kind.FIRST),
    ("", re.compile(rf"/(?:{OF_ID})/(?P<id>[^/]+)(?:/.*)?", re.DOTALL), Kind.OF_ID),
    ("", re.compile(r"/v1/responses/(?:resp_)?(?P<id>[^/]+)(?:/.*)?", re.DOTALL), Kind.OF_ID),
    ("", re.compile(r"/v1/artifacts/[^/]+"), Kind.ARTIFACT),
    ("POST", re.compile(r"/v1/responses"), Kind.GOES_ON),
    ("POST", re.compile(r"/agui"), Kind.THREAD),
    ("POST", re.compile(r"/v1/runs|/v1/schedules|/v1/chat/completions|(?:/v1)?/tools/[^/]+/call"), Kind.NEW),
    ("GET", re.compile(rf"/v1/(?:{LISTS}|queues/[^/]+)"), Kind.MERGED),
    ("", re.compile(r"/v1/(?:limits|versions|budgets?|dead|webhooks)(?:/.*)?|/metrics"), Kind.NAMED),
)
"""By method (any, where there is none) and path; the first that fits counts. What is nobody's, any of them refuses.

So do lists of the page, which are of one shard, and MCP, whose sessions are in one application: the first that is open.
"""


def place_of(method: str, path: str) -> Place:
    """Return who answers a request, by what it says of itself."""
    for only, pattern, kind in PLACES:
        found = pattern.fullmatch(path) if only in ("", method) else None
        if found:
            return Place(kind, found.groupdict().get("id", ""))
    return Place(Kind.FIRST)
