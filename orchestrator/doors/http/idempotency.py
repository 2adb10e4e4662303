"""Idempotency-Key on POSTs: the first request is performed, its repeats get its answer, for a day.

A key belongs to the tenant and the subject that ask with it: others may use the same one for something else. A pure
ASGI layer behind access and bodies. Only what succeeded is remembered: what failed has done nothing, and may be tried
again. Streams are not remembered; a run that is begun by one has an id that follows from the key. A completion is a run
that its repeats join, so its route is left to deal with its key (`JOINED`, `FirstRequest.claim_to_join`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from pydantic import Field
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfleet.calls import Record
from toolfleet.errors import Refused, StoreUnreachable, ToolfleetError
from toolfleet.keys import IDEMPOTENCY_TTL_S
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import NOT_AGAIN, Problem, answer, path_of, problem_of
from toolfleet.orchestrator.doors.http.sse import MEDIA_TYPE as STREAM
from toolfleet.skipped import skip
from toolfleet.wire import Seal

log = FactLog("toolfleet.http")

HEADER: Final = "idempotency-key"
MAX_CHARS: Final = 255

UNDER_WAY_S: Final = 120
"""A request that has neither ended nor failed for so long was lost with its server, and may be made again."""

JOINED: Final = frozenset({"/v1/chat/completions", "/v1/responses"})
"""Where a repeat is no second answer, but a second listener."""

SECRETIVE: Final = re.compile(r"/v1/webhooks(/[^/]+/rotate)?")
"""Whose answers hold a secret that must not stand in Redis. A repeat adds no second endpoint: its URL is taken."""

REDIRECTION: Final = 300
SERVER_ERROR: Final = 500


class Idempotency:
    """Performs a POST with an Idempotency-Key once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Perform the request, or give the answer that it had."""
        if scope["type"] != "http" or scope["method"] != "POST" or "grant" not in scope.get("state", {}):
            await self._app(scope, receive, send)
            return
        if path_of(scope) in JOINED or SECRETIVE.fullmatch(path_of(scope)):
            await self._app(scope, receive, send)
            return
        try:
            first = FirstRequest.of(scope)
            if first is not None:
                await self._perform_once(first, scope, receive, send)
                return
        except Problem as problem:
            await answer(problem, path_of(scope))(scope, receive, send)
            return
        except ToolfleetError as error:
            await answer(problem_of(error), path_of(scope))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _perform_once(self, first: FirstRequest, scope: Scope, receive: Receive, send: Send) -> None:
        known = await first.claim()
        if known is None:
            await first.perform(self._app, receive, send)
        elif known.is_stream:
            await self._app(scope, receive, send)
        else:
            await known.response()(scope, receive, send)


class _Head(Record):
    """What is known of a first request, but for the body that it was answered with."""

    fingerprint: str
    status: int | None = None
    """None while it is under way."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    granted: Grant | None = None
    """What the key that it was made with may do."""


class _Known(NamedTuple):
    """What is known of a first request: all of it under one seal, for an answer is told as what was done."""

    head: _Head
    body: bytes = b""

    def sealed(self, seal: Seal, name: str) -> bytes:
        """Return it as it is stored under this name."""
        return seal.close_kept(self.head.model_dump_json().encode() + b"\n" + self.body, name)

    @classmethod
    def opened(cls, seal: Seal, sealed: bytes, name: str) -> _Known:
        """Return what is stored under this name. Raises Refused, ValueError for what the fleet did not write so."""
        head, _, body = seal.open_kept(sealed, name).partition(b"\n")
        return cls(_Head.model_validate_json(head, extra="ignore"), body)

    @property
    def is_stream(self) -> bool:
        return self.head.headers.get("content-type", "").startswith(STREAM)

    def response(self) -> Response:
        """Make the answer once more. Only for one that has a status."""
        headers = {**self.head.headers, "idempotency-replayed": "true"}
        return Response(self.body, status_code=self.head.status or HTTPStatus.OK, headers=headers)


class FirstRequest:
    """One request with a key, and its record in Redis."""

    def __init__(self, scope: Scope, key: str) -> None:
        state, path = scope["state"], path_of(scope)
        grant: Grant = state["grant"]
        self._grant = grant
        self._scope = scope
        self._door: Door = scope["app"].state.door
        self._fingerprint = digest_of(path.encode(), state.get("body", b"")).hex()
        # Tools answer for who asks, so a subject is never told what another one was answered.
        whose = (grant.tenant.encode(), grant.subject.encode(), key.encode())
        self._name = name_of_record(self._door, grant, key)
        # A tool may have an effect that must not happen twice: its call is never tried again on suspicion.
        self._is_call = path.startswith("/v1/tools/")
        self.digest = digest_of(*whose, self._fingerprint.encode())
        """Of the request, of its key and of who asks."""
        # A run that was begun before its server was lost is found again under the same id.
        state["derived_id"] = self._door.settings.id_prefix + self.digest.hex()[:32]

    @classmethod
    def of(cls, scope: Scope) -> FirstRequest | None:
        """Return that of a request; None for one without a key. Raises Problem."""
        key = Headers(scope=scope).get(HEADER)
        if key is None:
            return None
        if not key or len(key) > MAX_CHARS:
            raise Problem(HTTPStatus.BAD_REQUEST, f"an Idempotency-Key has 1 to {MAX_CHARS} characters")
        return cls(scope, key)

    async def claim(self) -> _Known | None:
        """Claim the key. Returns None for the first request, and for a repeat what the first one was answered.

        Raises Problem while that is not known.
        """
        under_way_s = IDEMPOTENCY_TTL_S if self._is_call else UNDER_WAY_S
        known = await self._claimed(_Head(fingerprint=self._fingerprint), under_way_s)
        if known is None:
            return None
        if known.head.status is None:
            raise Problem(
                HTTPStatus.CONFLICT,
                "the first request with this Idempotency-Key has no answer yet",
                code="request-under-way",
                headers={"retry-after": "1"},
            )
        self._must_include(known.head.granted)
        return known

    async def claim_to_join(self) -> bool:
        """Claim the key for whoever sends this request with it. Returns whether this is the first. Raises Problem."""
        claimed = _Head(fingerprint=self._fingerprint, granted=self._granted)
        known = await self._claimed(claimed, IDEMPOTENCY_TTL_S)
        if known is not None:
            self._must_include(known.head.granted)
        return known is None

    async def give_up(self) -> None:
        """Let the key be used for another request: nothing was begun with it."""
        await self._door.client.delete(self._name)

    async def _claimed(self, head: _Head, keep_s: int) -> _Known | None:
        """Store what is known of the first request, unless something is. Returns that. Raises Problem."""
        mark = _Known(head).sealed(self._door.seal, self._name)
        reply = self._door.client.set(self._name, mark, nx=True, get=True, ex=keep_s)
        stored = cast("bytes | None", await cast("Awaitable[object]", reply))
        if stored is None:
            return None
        known = self._opened(stored)
        if known.head.fingerprint != self._fingerprint:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "this Idempotency-Key was used for another request; use a new one",
                code="idempotency-key-reused",
            )
        return known

    @property
    def _granted(self) -> Grant:
        return Grant(scopes=self._grant.scopes, tools=self._grant.tools)

    def _must_include(self, granted: Grant | None) -> None:
        """Raise Problem for a key that may do less: an answer tells what was done."""
        if granted is None or not self._grant.includes(granted):
            raise Problem(
                HTTPStatus.FORBIDDEN,
                "this Idempotency-Key was used with a key that may do more than this one; use a new one",
                code="idempotency-key-of-another",
            )

    def _opened(self, stored: bytes) -> _Known:
        try:
            return _Known.opened(self._door.seal, stored, self._name)
        except (Refused, ValueError) as error:
            skip("idempotent_answer", error)
            raise Problem(
                HTTPStatus.CONFLICT,
                "the answer to the first request with this Idempotency-Key cannot be read; look what it has done, and "
                "use a new key",
                code="answer-lost",
                headers=NOT_AGAIN,
            ) from None

    async def perform(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Let the request through, and remember what it is answered."""
        started: Message = {}
        body: list[bytes] = []

        async def noted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = message
                if _is_stream(message):
                    await self._remember(message, b"")
            elif not _is_stream(started):
                body.append(message.get("body", b""))
                if not message.get("more_body", False):
                    await self._settle(started, b"".join(body))
            await send(message)

        try:
            await app(self._scope, receive, noted)
        except BaseException:
            await self._settle({"status": SERVER_ERROR}, b"")
            raise

    async def _settle(self, started: Message, body: bytes) -> None:
        """Store the answer. Never raises: what was done is done, whether or not it can be remembered."""
        status: int = started["status"]
        try:
            if status < REDIRECTION:
                await self._remember(started, body)
            elif not (self._is_call and status >= SERVER_ERROR):
                await self._door.client.delete(self._name)
        except StoreUnreachable as error:
            log.warning("answer_not_remembered", error=str(error))

    async def _remember(self, started: Message, body: bytes) -> None:
        head = _Head(
            fingerprint=self._fingerprint,
            status=int(started["status"]),
            headers={name.decode(): value.decode("latin-1") for name, value in started["headers"]},
            granted=self._granted,
        )
        sealed = _Known(head, body).sealed(self._door.seal, self._name)
        await self._door.client.set(self._name, sealed, ex=IDEMPOTENCY_TTL_S)
        await self._door.usage.note(self._grant, self._name, len(body))


def name_of_record(door: Door, grant: Grant, key: str) -> str:
    """Return where it is kept what the first request with this key was answered."""
    whose = (grant.tenant.encode(), grant.subject.encode(), key.encode())
    return door.settings.keys.idempotent(digest_of(*whose).hex())


def _is_stream(started: Message) -> bool:
    return any(name == b"content-type" and value.startswith(STREAM.encode()) for name, value in started["headers"])


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of the parts and their lengths, so that no two lists of parts have the same."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
