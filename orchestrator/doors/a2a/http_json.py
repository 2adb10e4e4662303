"""A2A over plain HTTP: an address for each verb, protocol 1.0."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import orjson
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_1_0
from a2a.utils.errors import A2AError, InvalidRequestError
from a2a.utils.proto_utils import parse_params
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolfleet.orchestrator.doors.a2a import verbs
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.cards import HTTP
from toolfleet.orchestrator.doors.a2a.refusals import REFUSALS, broken_off, http_error, in_protocol
from toolfleet.orchestrator.doors.a2a.rpc import METHODS, STOPPING
from toolfleet.orchestrator.doors.a2a.updates import Event
from toolfleet.orchestrator.doors.a2a.versions import must_be_version
from toolfleet.orchestrator.doors.http.bodies import StrictJson
from toolfleet.orchestrator.doors.http.sse import EventStream

WITH_BODY: Final = frozenset({SendMessageRequest, TaskPushNotificationConfig})
"""What is read from a request's body; anything else from its address."""


@dataclass(frozen=True, slots=True)
class Address:
    """One verb at its address, which is answered as the method of this name is over JSON-RPC."""

    http: str
    path: str
    record: type[ProtoMessage]
    method: str

    async def answer(self, request: Request) -> Response:
        """Answer one request. Raises what an HTTP status tells: Problem, ToolfleetError."""
        try:
            must_be_version(request, PROTOCOL_VERSION_1_0)
            written = await self._written(request)
            params = self._read(request, written)
            asked = Asked(request.app.state.door, request.state.grant, request, written)
            verbs.must_be_whole(asked, params)
            method = METHODS[self.method]
            if method.stream is not None:
                return await _streamed(method.shown, asked, method.stream(asked, params))
            assert method.verb is not None  # noqa: S101  # a method has one of them
            return _json(method.shown(await method.verb(asked, params)) or {})
        except REFUSALS as error:
            known = in_protocol(error)
            if known is None:
                raise
            payload = http_error(known)
            return _json(payload, status=payload["error"]["code"], media_type="application/json")

    async def _written(self, request: Request) -> dict[str, Any]:
        if self.record not in WITH_BODY:
            return {}
        try:
            written = await StrictJson(request.scope, request.receive).json()
        except orjson.JSONDecodeError as error:
            raise InvalidRequestError(f"the body is no JSON: {error}") from None
        if not isinstance(written, dict):
            raise InvalidRequestError("the body is an object")
        return written

    def _read(self, request: Request, written: dict[str, Any]) -> ProtoMessage:
        params = self.record()
        try:
            ParseDict(written, params, ignore_unknown_fields=True)
            parse_params(request.query_params, params)
            for name, value in request.path_params.items():
                setattr(params, name, value)  # each record has the fields that its address names
        except (AttributeError, TypeError, ValueError) as error:  # what the reader lets through
            raise ParseError(str(error)) from None
        return params


PUSHES: Final = "/tasks/{task_id}/pushNotificationConfigs"

ADDRESSES: Final = (
    Address("POST", "/message:send", SendMessageRequest, "SendMessage"),
    Address("POST", "/message:stream", SendMessageRequest, "SendStreamingMessage"),
    Address("GET", "/tasks", ListTasksRequest, "ListTasks"),
    Address("POST", "/tasks/{id}:cancel", CancelTaskRequest, "CancelTask"),
    Address("GET", "/tasks/{id}:subscribe", SubscribeToTaskRequest, "SubscribeToTask"),
    Address("POST", "/tasks/{id}:subscribe", SubscribeToTaskRequest, "SubscribeToTask"),
    Address("GET", "/tasks/{id}", GetTaskRequest, "GetTask"),
    Address("GET", "/extendedAgentCard", GetExtendedAgentCardRequest, "GetExtendedAgentCard"),
    Address("POST", PUSHES, TaskPushNotificationConfig, "CreateTaskPushNotificationConfig"),
    Address("GET", PUSHES, ListTaskPushNotificationConfigsRequest, "ListTaskPushNotificationConfigs"),
    Address("GET", f"{PUSHES}/{{id}}", GetTaskPushNotificationConfigRequest, "GetTaskPushNotificationConfig"),
    Address("DELETE", f"{PUSHES}/{{id}}", DeleteTaskPushNotificationConfigRequest, "DeleteTaskPushNotificationConfig"),
)
"""In this order: what is more particular comes first."""


def routes() -> list[Route]:
    """Return the routes of all verbs."""
    return [Route(f"{HTTP}{each.path}", each.answer, methods=[each.http]) for each in ADDRESSES]


async def _streamed(shown: Callable[[Any], Any], asked: Asked, events: AsyncGenerator[Event, None]) -> Response:
    first = await anext(events)

    async def framed() -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            yield _data(shown(first))
            try:
                async for event in events:
                    yield _data(shown(event))
            except REFUSALS as error:
                yield b"event: error\n" + _data(http_error(broken_off(error)))

    def farewell() -> bytes:
        return b"event: error\n" + _data(http_error(broken_off(A2AError(STOPPING))))

    return EventStream(asked.door, framed(), farewell=farewell)


def _json(value: Any, *, status: int = 200, media_type: str = A2A_JSON_MEDIA_TYPE) -> Response:
    return Response(orjson.dumps(value), status_code=status, media_type=media_type)


def _data(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
