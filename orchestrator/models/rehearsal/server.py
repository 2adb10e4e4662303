"""A real HTTP server for the rehearsal model: Chat Completions on loopback, streamed and not.

Owns sockets, keys and injected faults; `planner` decides what to reply, `request` and `reply` know the format.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web
from pydantic import ValidationError

from toolfleet.errors import PortInUse
from toolfleet.orchestrator.models.rehearsal.faults import (
    CutStream,
    Dialect,
    Drip,
    ErrorInStream,
    ErrorStatus,
    Fault,
    Garbage,
    Hang,
)
from toolfleet.orchestrator.models.rehearsal.planner import plan
from toolfleet.orchestrator.models.rehearsal.reply import REHEARSAL_MODEL, Reply
from toolfleet.orchestrator.models.rehearsal.request import (
    CompletionRequest,
    RequestRefused,
    conversation,
    offered_tools,
    refuse_unsigned,
)

LOOPBACK = "127.0.0.1"
MAX_REQUEST_BYTES = 64 * 1024 * 1024
KEPT_REQUESTS = 256
SHUTDOWN_S = 1.0


class RehearsalServer:
    """The rehearsal model's server, listening from `async with` to its end.

    `port=0` takes a free one; `base_url` is what `OpenAIChat` wants, together with `api_key`. Each fault is spent on
    one request, in order; requests after the last one are answered well. `request_count` counts what arrived,
    `requests` keeps the bodies of the latest 256. Raises PortInUse.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        api_key: str = "rehearsal",
        faults: Sequence[Fault] = (),
        dialect: Dialect | None = None,
    ) -> None:
        self._port = port
        self._api_key = api_key
        self._faults = deque(faults)
        self._dialect = dialect or Dialect()
        self._closing = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.request_count = 0
        self.requests: deque[dict[str, Any]] = deque(maxlen=KEPT_REQUESTS)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            address = f"{LOOPBACK}:{self._port}"
            raise PortInUse(f"the rehearsal model cannot listen on {address}: {error.strerror}") from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """The address for `OpenAIChat(REHEARSAL_MODEL, base_url=…, api_key=…)`."""
        return f"http://{LOOPBACK}:{self._port}/v1"

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": REHEARSAL_MODEL, "object": "model", "created": 0, "owned_by": "toolfleet"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.request_count += 1
        self.requests.append(_parse_recorded(body))
        fault = self._faults.popleft() if self._faults else None
        match fault:
            case ErrorStatus():
                return _error_response(fault)
            case Garbage():
                return web.Response(text=fault.body, content_type=fault.media_type)
            case Hang(after_chunks=None):
                await self._closing.wait()
                return _error_response(ErrorStatus(HTTPStatus.SERVICE_UNAVAILABLE))
        if request.headers.get("authorization") != f"Bearer {self._api_key}":
            # Repeats the key, as some servers do, so that the client's care is put to the test.
            said = f"Incorrect API key provided: {request.headers.get('authorization', '')}."
            return _error_response(ErrorStatus(HTTPStatus.UNAUTHORIZED, said, type="invalid_request_error"))
        return await self._reply(request, body, fault)

    async def _reply(
        self, request: web.Request, body: bytes, fault: Hang | CutStream | ErrorInStream | Drip | None
    ) -> web.StreamResponse:
        try:
            asked = CompletionRequest.model_validate_json(body)
            planned = plan(conversation(asked), offered_tools(asked))
            if self._dialect.signs_calls:
                refuse_unsigned(asked)
        except (ValidationError, RequestRefused) as error:
            return _error_response(ErrorStatus(HTTPStatus.BAD_REQUEST, str(error), type="invalid_request_error"))
        if asked.model != REHEARSAL_MODEL:
            said = f"The model '{asked.model}' does not exist; this server has {REHEARSAL_MODEL}."
            return _error_response(ErrorStatus(HTTPStatus.NOT_FOUND, said, type="invalid_request_error"))
        reply = Reply(planned, body, self._dialect)
        if not (asked.stream and self._dialect.streams):
            return web.json_response(body=orjson.dumps(reply.whole()))
        return await self._stream(request, list(reply.chunks(with_usage=asked.wants_usage)), fault)

    async def _stream(
        self,
        request: web.Request,
        chunks: Sequence[dict[str, Any]],
        fault: Hang | CutStream | ErrorInStream | Drip | None,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        await response.prepare(request)
        for chunk in chunks[: _chunks_before(fault)]:
            await response.write(_server_event(orjson.dumps(chunk)))
            await asyncio.sleep(0)  # as a model speaks: one piece after the other, not all at once
        match fault:
            case Drip():
                while not self._closing.is_set():
                    await response.write(b": still thinking\n\n")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), fault.pause_s)
                return response
            case CutStream():
                if request.transport is not None:
                    request.transport.abort()
                return response
            case Hang():
                await self._closing.wait()
                return response
            case ErrorInStream():
                error = {"error": {"message": fault.message, "type": fault.type}}
                await response.write(_server_event(orjson.dumps(error)))
            case None if self._dialect.says_done:
                await response.write(_server_event(b"[DONE]"))
        await response.write_eof()
        return response


def _chunks_before(fault: Hang | CutStream | ErrorInStream | Drip | None) -> int | None:
    """Return how much of the reply is sent before the fault; None for all of it."""
    match fault:
        case None:
            return None
        case Drip():
            return 1
        case _:
            return fault.after_chunks


def _server_event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _error_response(status: ErrorStatus) -> web.Response:
    headers = {} if status.retry_after is None else {"retry-after": status.retry_after}
    error = {"message": status.message, "type": status.type, "param": None, "code": None}
    return web.json_response({"error": error}, status=status.code, headers=headers)


def _parse_recorded(body: bytes) -> dict[str, Any]:
    try:
        recorded: dict[str, Any] = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return recorded
