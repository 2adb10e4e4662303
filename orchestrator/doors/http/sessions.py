"""Sessions of the page: a cookie that stands for a key, and what a browser must say before anything is changed.

The cookie names the key by its digest, sealed with the fleet's secret, so nothing is stored, any server of the fleet
knows it, and it ends with the key. It opens the page and nothing else: the API goes by the `Authorization` header.
"""

from __future__ import annotations

import base64
import time
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.local.local_key import LocalKey
from toolfleet.orchestrator.doors.http.key_store import Grant, Keyring, Scope, digest_of
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.wire import Seal

SESSION_S: Final = 12 * 3600
"""A working day; then the key has to be given again."""

SIGN_IN: Final = "/sign-in"

LIVE: Final = "live"
"""How the paths end at which the page hears what is new."""

OPEN_FOLDERS: Final = frozenset({"static", "sign-in"})

FOLDERS: Final = frozenset(
    {
        "",
        "runs",
        "calls",
        "approvals",
        "questions",
        "jobs",
        "batches",
        "webhooks",
        "schedules",
        "tools",
        "dead-letters",
        "find",
        "overview",
        "sign-out",
        *OPEN_FOLDERS,
    }
)
"""How the page's paths begin; all others belong to the API."""

LOCAL: Final = Grant(subject="local", scopes=tuple(Scope))
"""What whoever has this machine's user may do."""

_SEALED_FOR: Final = "page-session"


class Session(Record):
    """What a cookie says: which key was given, and how long it is believed."""

    v: Literal[1] = 1
    key_digest: str
    is_local: bool = False
    ends_unix_s: float


def folder_of(path: str) -> str:
    """Return how a path begins."""
    return path.removeprefix("/").partition("/")[0]


def is_of_page(path: str) -> bool:
    """Return whether a path is the page's, for people, and not the API's."""
    return folder_of(path) in FOLDERS


def is_open(path: str) -> bool:
    """Return whether a path of the page is shown to everybody."""
    return folder_of(path) in OPEN_FOLDERS


def cookie_name(scope: AsgiScope) -> str:
    """Return the name of the cookie: browsers keep cookies by host, and two servers of one machine differ by port."""
    server = scope.get("server") or ("", 0)
    return f"toolfleet-{server[1] or 0}"


def cookie_of(session: Session, seal: Seal) -> str:
    """Return what the cookie of a session holds."""
    return base64.urlsafe_b64encode(seal.close_kept(session.model_dump_json().encode(), _SEALED_FOR)).decode()


def session_in(scope: AsgiScope, seal: Seal) -> Session | None:
    """Return the session of a request; None without one that this fleet has sealed and that goes on."""
    try:
        cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        sealed = base64.urlsafe_b64decode(cookies[cookie_name(scope)].value)
        session = Session.model_validate_json(seal.open_kept(sealed, _SEALED_FOR))
    except (CookieError, KeyError, ValueError, ValidationError, Refused):
        return None
    return session if time.time() < session.ends_unix_s else None


async def session_for(key: str, keyring: Keyring, local_key: LocalKey) -> Session | None:
    """Return a new session for a key; None for one that opens nothing. Raises StoreUnreachable."""
    ends_unix_s = time.time() + SESSION_S
    if local_key.is_it(key):
        return Session(key_digest=digest_of(key), is_local=True, ends_unix_s=ends_unix_s)
    if await keyring.find(key) is None:
        return None
    return Session(key_digest=digest_of(key), ends_unix_s=ends_unix_s)


async def grant_of(session: Session, keyring: Keyring, local_key: LocalKey) -> Grant | None:
    """Return what the key of a session may do now; None once it was revoked, has expired or is another."""
    if session.is_local:
        return LOCAL if digest_of(local_key.read()) == session.key_digest else None
    return await keyring.with_digest(session.key_digest)


def must_be_from_here(headers: Headers) -> None:
    """Raise Problem for what another site makes a browser send: only the page's own forms change anything."""
    site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "")
    is_same = site is not None or origin is not None
    if site is not None and site != "same-origin":
        is_same = False
    if origin is not None and (not host or _host_of(origin) != host.lower()):
        is_same = False
    if not is_same:
        raise Problem(
            HTTPStatus.FORBIDDEN,
            "this was not sent by a form of this page: a browser says so with Sec-Fetch-Site or Origin. Programs use "
            "the API under /v1",
            code="not-from-here",
        )


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
