"""Idempotency-Key on POSTs: the first request is performed, its repeats get its answer, for a day.

A pure ASGI layer behind access and bodies. Only what succeeded is remembered: what failed has done nothing, and may be
tried again. Streams are not remembered; a run that is begun by one has an id that follows from the key.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Any, Final, cast

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolfleet.errors import StoreUnreachable, ToolfleetError
from toolfleet.keys import IDEMPOTENCY_TTL_S
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem, answer, path_of, problem_of
from toolfleet.orchestrator.doors.http.sse import MEDIA_TYPE as STREAM
from toolfleet.scripts import lua
from toolfleet.skipped import skip

log = FactLog("toolfleet.http")

HEADER: Final = "idempotency-key"
MAX_CHARS: Final = 255

UNDER_WAY_S: Final = 120
"""A request that has neither ended nor failed for so long was lost with its server, and may be made again."""

REDIRECTION: Final = 300
SERVER_ERROR: Final = 500

BEGIN: Final = lua(__package__, "begin_request")


class Idempotency:
    """Performs a POST with an Idempotency-Key once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Perform the request, or give the answer that it had."""
        if scope["type"] != "http" or scope["method"] != "POST" or "grant" not in scope.get("state", {}):
            await self._app(scope, receive, send)
            return
        key = Headers(scope=scope).get(HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._perform_once(key, scope, receive, send)
        except Problem as problem:
            await answer(problem, path_of(scope))(scope, receive, send)
        except ToolfleetError as error:
            await answer(problem_of(error), path_of(scope))(scope, receive, send)

    async def _perform_once(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not key or len(key) > MAX_CHARS:
            raise Problem(HTTPStatus.BAD_REQUEST, f"an Idempotency-Key has 1 to {MAX_CHARS} characters")
        first = _First(scope, key)
        known = await first.claim()
        if known is None:
            await first.perform(self._app, receive, send)
        elif known.is_stream:
            await self._app(scope, receive, send)
        else:
            await known.response()(scope, receive, send)


class _Known:
    """What a first request was answered."""

    def __init__(self, status: bytes, headers: bytes, body: bytes) -> None:
        self._status = int(status)
        self._headers = {**orjson.loads(headers), "idempotency-replayed": "true"}
        self._body = body

    @property
    def is_stream(self) -> bool:
        return bool(self._headers.get("content-type", "").startswith(STREAM))

    def response(self) -> Response:
        return Response(self._body, status_code=self._status, headers=self._headers)


class _First:
    """One request and its record in Redis."""

    def __init__(self, scope: Scope, key: str) -> None:
        state, path = scope["state"], path_of(scope)
        grant: Grant = state["grant"]
        self._grant = grant
        self._scope = scope
        self._door: Door = scope["app"].state.door
        self._fingerprint = _digest(path.encode(), state.get("body", b""))
        self._name = self._door.settings.keys.idempotent(_digest(grant.tenant.encode(), key.encode()))
        # A tool may have an effect that must not happen twice: its call is never tried again on suspicion.
        self._is_call = path.startswith("/v1/tools/")
        # A run that was begun before its server was lost is found again under the same id.
        state["derived_id"] = _digest(grant.tenant.encode(), key.encode(), self._fingerprint.encode())[:32]

    async def claim(self) -> _Known | None:
        """Claim the key. Returns None for the first request, and for a repeat what the first one was answered.

        Raises Problem while that is not known.
        """
        script = self._door.client.register_script(BEGIN)
        under_way_s = IDEMPOTENCY_TTL_S if self._is_call else UNDER_WAY_S
        known = cast(
            "list[bytes | None] | None",
            await script(keys=[self._name], args=[self._fingerprint, under_way_s * 1000]),
        )
        if known is None:
            return None
        fingerprint, status, headers, body, granted = known
        if fingerprint != self._fingerprint.encode():
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "this Idempotency-Key was used for another request; use a new one",
                code="idempotency-key-reused",
            )
        if status is None:
            raise Problem(
                HTTPStatus.CONFLICT,
                "the first request with this Idempotency-Key has no answer yet",
                code="request-under-way",
                headers={"retry-after": "1"},
            )
        try:
            may_be_told = self._grant.includes(Grant.model_validate_json(granted or b"{}"))
            answer = _Known(status, headers or b"{}", body or b"")
        except (TypeError, ValueError) as error:
            skip("idempotent_answer", error)
            raise Problem(
                HTTPStatus.CONFLICT,
                "the answer to the first request with this Idempotency-Key cannot be read; look what it has done, and "
                "use a new key",
                code="answer-lost",
            ) from None
        # An answer tells what was done: whoever may not have it done must not read it.
        if not may_be_told:
            raise Problem(
                HTTPStatus.FORBIDDEN,
                "this Idempotency-Key was used with a key that may do more than this one; use a new one",
                code="idempotency-key-of-another",
            )
        return answer

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
        headers = {name.decode(): value.decode("latin-1") for name, value in started["headers"]}
        fields: dict[Any, Any] = {
            "status": int(started["status"]),
            "headers": orjson.dumps(headers),
            "body": body,
            "granted": Grant(scopes=self._grant.scopes, tools=self._grant.tools).model_dump_json(),
        }
        pipeline = self._door.client.pipeline(transaction=True)
        pipeline.hset(self._name, mapping={"fingerprint": self._fingerprint, **fields})
        pipeline.expire(self._name, IDEMPOTENCY_TTL_S)
        await pipeline.execute()
        await self._door.usage.note(self._grant, self._name, len(body))


def _is_stream(started: Message) -> bool:
    return any(name == b"content-type" and value.startswith(STREAM.encode()) for name, value in started["headers"])


def _digest(*parts: bytes) -> str:
    """Return a digest of the parts and their lengths, so that no two lists of parts have the same."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
