"""HTTP for models: a request, and the text of a page. Only the public internet is reached, unless the operator allows.

Every address is checked after resolution and after each redirect, and the connection is made to what was checked
(`workers/net`). Redirects of writing requests are not followed.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import httpx
from pydantic import Field, field_validator
from typing_extensions import TypedDict

from toolfleet import ToolError, tool
from toolfleet.workers.packs.bounded import in_bounded_child
from toolfleet.workers.packs.net.charsets import decoded
from toolfleet.workers.packs.net.fetch import Fetched, FetchLimits, Request, fetch
from toolfleet.workers.packs.net.gate import Allowed, Gate
from toolfleet.workers.packs.net.page import page_text
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, Words, for_pack, read_pack_settings

WRITING: Final = ("POST", "PUT", "PATCH", "DELETE")

SHOWN_HEADERS: Final = ("content-type", "location", "last-modified", "etag", "retry-after", "link", "allow")
"""Headers of an answer that a model can use; cookies and the like are none of its business."""

TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")

MAX_HEADER_CHARS: Final = 1000

LAYOUT_TIMEOUT_S: Final = 10.0
"""A page of a megabyte takes about a second; one that is made for it, without end."""

HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


class HttpSettings(PackSettings):
    """What may be reached, and how much may be read."""

    model_config = for_pack("http")

    allow: Words = ()
    """Hosts, addresses and networks (`host`, `host:port`, `10.0.0.0/8`) that may be reached though not public."""

    writing_methods: Words = ()
    """Of POST, PUT, PATCH and DELETE, those that `http_send` may use; without one there is no such tool."""

    timeout_s: Seconds = 30.0
    """How long one exchange may take in all, redirects included."""

    max_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 2 * 1024 * 1024
    """How much of an answer is read, after decompression; the model is told when there was more."""

    max_chars: Annotated[int, Field(ge=100)] = 50_000
    """How much text of one answer a model is given."""

    max_redirects: Annotated[int, Field(ge=0)] = 5
    """How many redirects in a row are followed."""

    @field_validator("allow")
    @classmethod
    def _can_be_read(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for each in allow:
            Allowed.read(each)
        return allow

    @field_validator("writing_methods")
    @classmethod
    def _write(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        upper = tuple(method.upper() for method in methods)
        if unknown := set(upper) - set(WRITING):
            raise ValueError(f"{', '.join(sorted(unknown))}: only {', '.join(WRITING)} are writing methods")
        return upper


class Answer(TypedDict):
    """An answer as a model reads it."""

    status: int
    url: str
    headers: dict[str, str]
    body: str
    cut: bool


class Page(TypedDict):
    """The text of a page."""

    url: str
    text: str
    cut: bool


class Http:
    """Requests within the limits of its settings."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._gate = Gate([Allowed.read(each) for each in settings.allow])

    @tool(read_only=True)
    async def http_request(
        self, url: str, method: Literal["GET", "HEAD"] = "GET", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send an HTTP request that only reads, and get status, headers and body. Redirects are followed.

        Args:
            url: http:// or https://, on the public internet
            method: HEAD for the headers alone
            headers: of the request, by name
        """
        return self._answer(await self._fetch(Request(method, url, headers or {}), self._settings.max_redirects))

    @tool
    async def http_send(
        self,
        url: str,
        method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST",
        headers: dict[str, str] | None = None,
        body: str = "",
    ) -> Answer:
        """Send an HTTP request that changes something, and get status, headers and body. Redirects are not followed.

        Args:
            url: http:// or https://, on the public internet
            method: what to do there
            headers: of the request, by name; say the Content-Type of a body
            body: text, for example JSON
        """
        if method not in self._settings.writing_methods:
            allowed = ", ".join(self._settings.writing_methods) or "no writing method"
            raise ToolError(f"{method} is not allowed here; allowed is {allowed}")
        return self._answer(await self._fetch(Request(method, url, headers or {}, body.encode()), 0))

    @tool(read_only=True)
    async def web_page(self, url: str) -> Page:
        """Read a web page as plain text, without markup, scripts and styles.

        Args:
            url: http:// or https://, on the public internet
        """
        accept = {"accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.1"}
        fetched = await self._fetch(Request("GET", url, accept), self._settings.max_redirects)
        if not 200 <= fetched.status < 300:
            raise ToolError(f"the server answered with status {fetched.status}")
        if fetched.media_type in HTML_TYPES:
            what = f"laying out the page of {httpx.URL(fetched.url).host}"
            text = await in_bounded_child(LAYOUT_TIMEOUT_S, what, page_text, fetched.body, fetched.charset)
        else:
            text = self._text(fetched)
        text, cut = self._shortened(text)
        return Page(url=fetched.url, text=text, cut=cut or fetched.cut)

    async def _fetch(self, request: Request, max_redirects: int) -> Fetched:
        limits = FetchLimits(self._settings.timeout_s, self._settings.max_bytes, max_redirects)
        return await fetch(request, limits, self._gate)

    def _answer(self, fetched: Fetched) -> Answer:
        body, cut = self._shortened(self._text(fetched))
        shown = {name: fetched.headers[name][:MAX_HEADER_CHARS] for name in SHOWN_HEADERS if name in fetched.headers}
        return Answer(status=fetched.status, url=fetched.url, headers=shown, body=body, cut=cut or fetched.cut)

    def _shortened(self, text: str) -> tuple[str, bool]:
        return text[: self._settings.max_chars], len(text) > self._settings.max_chars

    def _text(self, fetched: Fetched) -> str:
        """The body if it is text, of which no more is decoded than is shown and one character."""
        media_type = fetched.media_type
        if not fetched.body or not media_type or media_type.startswith(TEXT_TYPES):
            return decoded(fetched.body, fetched.charset, self._settings.max_chars + 1)
        if media_type.endswith(("+json", "+xml")):
            return decoded(fetched.body, fetched.charset, self._settings.max_chars + 1)
        return f"[{fetched.media_type}, {len(fetched.body)} bytes, not shown]"


_settings = read_pack_settings(HttpSettings)
_http = Http(_settings)
http_request, web_page = _http.http_request, _http.web_page
if _settings.writing_methods:
    http_send = _http.http_send
