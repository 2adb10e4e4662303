"""The resources of one server: listed in pages that a model can read, and which of them may be read.

A server's pages may be of any length and number; a model's are short, and it goes on where the last one ended. What is
read must be named by the server, by a template of it, or by the configuration.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from mcp import Client
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import Resource, ResourceTemplate

from toolfleet import ToolError
from toolfleet.workers.packs.mcp_servers.connection import News

MAX_ENTRIES: Final = 100
"""Resources or templates in one page for a model."""

MAX_PAGE_CHARS: Final = 30_000

MAX_TEXT_CHARS: Final = 300
"""Of a name or a description in a page."""

MAX_URI_CHARS: Final = 2000
"""One that is longer is not listed, and nobody can ask for it."""

MAX_CURSOR_CHARS: Final = 2000

MAX_KNOWN: Final = 20_000
"""URIs that are looked through for one; what a server lists behind them has to be templated or configured."""

MAX_PAGES: Final = 200

KNOWN_FOR_S: Final = 60.0
"""How long what a server lists is believed without another look, if it tells of no change."""

LOOK_EVERY_S: Final = 1.0
"""How soon it is listed again for a URI that it did not name."""

RESOURCES: Final = "resources"
TEMPLATES: Final = "templates"

PAGE: Final = re.compile(rf"({RESOURCES}|{TEMPLATES}):(\d{{1,9}}):(.*)", re.DOTALL)

Look = Callable[[], Awaitable["Named"]]
"""`Resources.look` by a client, with its errors told as `Remote` does."""


class Place(NamedTuple):
    """Where a page begins."""

    kind: str = RESOURCES
    skip: int = 0
    cursor: str = ""
    """The server's own."""

    @classmethod
    def of(cls, page: str) -> Place:
        """Return what a model has written. Raises ToolError."""
        if not page:
            return cls()
        found = PAGE.fullmatch(page)
        if found is None:
            raise ToolError("no such page: leave it out for the first one, and then take what `next_page` says")
        return cls(found[1], int(found[2]), found[3])

    def __str__(self) -> str:
        return f"{self.kind}:{self.skip}:{self.cursor}"


class Named(NamedTuple):
    """What a server named when it was last looked at."""

    uris: frozenset[str]
    templates: tuple[UriTemplate, ...]
    news: int
    looked_s: float
    is_all: bool

    def has(self, uri: str) -> bool:
        """Whether this is one of them, or fits a template."""
        return uri in self.uris or (not _climbs(uri) and any(_fits(each, uri) for each in self.templates))


class Resources:
    """What can be read of one server, on one event loop."""

    def __init__(self, server: str, patterns: Iterable[str], news: News) -> None:
        """`patterns`: of URIs that may be read besides those that are named."""
        self._server = server
        self._patterns = tuple(patterns)
        self._news = news
        self._named: Named | None = None
        self._looking = asyncio.Lock()

    # --- listing ----------------------------------------------------------------------------------------------------

    async def page(self, client: Client, at: Place) -> dict[str, Any]:
        """Return one page: of resources first, and of templates when there are no more of them."""
        entries, following = await _server_page(client, at.kind, at.cursor)
        shown: list[dict[str, Any]] = []
        taken, left = at.skip, MAX_PAGE_CHARS
        for entry in entries[at.skip :]:
            told = _told(entry)
            left -= 0 if told is None else sum(map(len, map(str, told.values())))
            if len(shown) >= MAX_ENTRIES or (shown and left < 0):
                break
            taken += 1
            if told is not None:
                shown.append(told)
        page: dict[str, Any] = {RESOURCES: [], TEMPLATES: [], at.kind: shown}
        next_page = self._next(at, taken < len(entries), taken, following)
        return page if next_page is None else {**page, "next_page": str(next_page)}

    @staticmethod
    def _next(at: Place, has_rest: bool, taken: int, following: str | None) -> Place | None:  # noqa: FBT001  # of one caller, beside what it counts
        if has_rest:
            return at._replace(skip=taken)
        if following and len(following) <= MAX_CURSOR_CHARS and following != at.cursor:
            return Place(at.kind, 0, following)
        return Place(TEMPLATES) if at.kind == RESOURCES else None

    # --- reading ----------------------------------------------------------------------------------------------------

    async def must_be_named(self, uri: str, look: Look) -> None:
        """Raise ToolError for a URI that this server neither lists nor templates, unless the configuration has it."""
        if len(uri) > MAX_URI_CHARS:
            raise ToolError(f"a URI has at most {MAX_URI_CHARS} characters")
        if not _climbs(uri) and any(fnmatchcase(uri, pattern) for pattern in self._patterns):
            return
        async with self._looking:  # one looks for all who ask at once
            named = self._named
            if named is None or not (self._is_no_older(named, KNOWN_FOR_S) and named.has(uri)):
                if named is None or not self._is_no_older(named, LOOK_EVERY_S):
                    named = self._named = await look()
                if not named.has(uri):
                    raise ToolError(self._refusal(named))

    def _is_no_older(self, named: Named, seconds: float) -> bool:
        return named.news == self._news.count and time.monotonic() - named.looked_s < seconds

    def _refusal(self, named: Named) -> str:
        said = f"the MCP server {self._server} names no such resource: read only what it lists, or what fits a template"
        if named.is_all:
            return said
        return f"{said}. It lists more than are looked through; others need a pattern in its configuration"

    async def look(self, client: Client) -> Named:
        """Return what the server names now, as far as that is looked through."""
        news = self._news.count
        uris: set[str] = set()
        templates: list[UriTemplate] = []
        walks = {RESOURCES: _Walk(client, RESOURCES), TEMPLATES: _Walk(client, TEMPLATES)}
        async for entry in walks[RESOURCES].entries():
            uris.add(entry.uri)
        async for entry in walks[TEMPLATES].entries():
            templates += _parsed(entry.uri_template)
        is_all = all(walk.is_all for walk in walks.values())
        return Named(frozenset(uris), tuple(templates), news, time.monotonic(), is_all)


class _Walk:
    """A walk through the server's pages of one kind, for as long as that may last."""

    def __init__(self, client: Client, kind: str) -> None:
        self._client = client
        self._kind = kind
        self.is_all = False

    async def entries(self) -> Any:
        """Yield what is listed."""
        cursor, count = "", 0
        for _ in range(MAX_PAGES):
            entries, following = await _server_page(self._client, self._kind, cursor)
            for entry in entries[: MAX_KNOWN - count]:
                yield entry
            count += len(entries)
            if not following or following == cursor:
                self.is_all = count <= MAX_KNOWN
                return
            if count >= MAX_KNOWN:
                return
            cursor = following


async def has_any(client: Client) -> bool:
    """Return whether a server says that it has resources, and names one, or a template."""
    if client.server_capabilities.resources is None:
        return False
    for kind in (RESOURCES, TEMPLATES):
        entries, _ = await _server_page(client, kind, "")
        if entries:
            return True
    return False


async def _server_page(client: Client, kind: str, cursor: str) -> tuple[list[Any], str | None]:
    """Return one page of the server's, and the cursor of the next."""
    if kind == RESOURCES:
        listed = await client.list_resources(cursor=cursor or None, cache_mode="bypass")
        return list(listed.resources), listed.next_cursor
    templates = await client.list_resource_templates(cursor=cursor or None, cache_mode="bypass")
    return list(templates.resource_templates), templates.next_cursor


def _told(entry: Resource | ResourceTemplate) -> dict[str, Any] | None:
    """What a model is told of a resource or a template; nothing of one that it could not ask for."""
    uri = entry.uri if isinstance(entry, Resource) else entry.uri_template
    if len(uri) > MAX_URI_CHARS:
        return None
    told = {
        ("uri" if isinstance(entry, Resource) else "uri_template"): uri,
        "name": _cut(entry.title or entry.name),
        "description": _cut(entry.description or ""),
        "media_type": _cut(entry.mime_type or ""),
        "size_bytes": entry.size if isinstance(entry, Resource) else None,
    }
    return {key: value for key, value in told.items() if value not in ("", None)}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


def _parsed(template: str) -> Iterator[UriTemplate]:
    try:
        yield UriTemplate.parse(template, max_length=MAX_URI_CHARS)
    except InvalidUriTemplate:
        return  # nothing fits it


def _fits(template: UriTemplate, uri: str) -> bool:
    return template.match(uri, max_uri_length=MAX_URI_CHARS) is not None


def _climbs(uri: str) -> bool:
    """Whether a path in it leads upwards: what fits a template only before that is followed is another resource."""
    return not {".", ".."}.isdisjoint(re.split(r"[/\\?#]", unquote(unquote(uri))))
