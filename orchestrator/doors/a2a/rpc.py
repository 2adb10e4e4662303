"""A2A over JSON-RPC, at one address: protocol 1.0 and, by its methods' other names, 0.3."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
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
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError, JSONParseError, MethodNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.a2a import pushing, verbs
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.cards import card_json
from toolfleet.orchestrator.doors.a2a.listing import in_json
from toolfleet.orchestrator.doors.a2a.refusals import REFUSALS, broken_off, in_protocol, rpc_error
from toolfleet.orchestrator.doors.a2a.updates import Event
from toolfleet.orchestrator.doors.a2a.versions import must_be_version
from toolfleet.orchestrator.doors.http.bodies import StrictJson
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.webhooks.push_records import Protocol

MEDIA_TYPE: Final = "application/json"

V1: Final[Protocol] = "1.0"

STOPPING: Final = "this server stops: subscribe to the task again, here or at another"


@dataclass(frozen=True, slots=True)
class Method:
    """One method: what it is given, which verb it is, and how that is answered."""

    version: Protocol
    read: Callable[[Mapping[str, Any]], Any]
    """The record of the parameters, in the words of 1.0."""
    verb: Callable[[Asked, Any], Awaitable[Any]] | None = None
    stream: Callable[[Asked, Any], AsyncGenerator[Event, None]] | None = None
    shown: Callable[[Any], Any] = MessageToDict
    """What it answers, or one event of it, as JSON."""


def reading(record: type[ProtoMessage]) -> Callable[[Mapping[str, Any]], ProtoMessage]:
    """Return what reads parameters of protocol 1.0. Fields that are not known are left out, as it says."""

    def read(params: Mapping[str, Any]) -> ProtoMessage:
        return ParseDict(dict(params), record(), ignore_unknown_fields=True)

    return read


def _sent(task: Task) -> Any:
    return MessageToDict(SendMessageResponse(task=task))


def _event(event: Event) -> Any:
    return MessageToDict(to_stream_response(event))


def nothing(_: None) -> None:
    """Show that there is nothing to show."""


def _method(record: type[ProtoMessage], verb: Callable[[Asked, Any], Awaitable[Any]], **more: Any) -> Method:
    return Method(V1, reading(record), verb, **more)


METHODS: Final = {
    "SendMessage": _method(SendMessageRequest, verbs.send, shown=_sent),
    "SendStreamingMessage": Method(V1, reading(SendMessageRequest), stream=verbs.send_streaming, shown=_event),
    "GetTask": _method(GetTaskRequest, verbs.get),
    "ListTasks": _method(ListTasksRequest, verbs.list_tasks, shown=in_json),
    "CancelTask": _method(CancelTaskRequest, verbs.cancel),
    "SubscribeToTask": Method(V1, reading(SubscribeToTaskRequest), stream=verbs.subscribe, shown=_event),
    "GetExtendedAgentCard": _method(GetExtendedAgentCardRequest, verbs.show_extended_card, shown=card_json),
    "CreateTaskPushNotificationConfig": _method(TaskPushNotificationConfig, pushing.create),
    "GetTaskPushNotificationConfig": _method(GetTaskPushNotificationConfigRequest, pushing.get),
    "ListTaskPushNotificationConfigs": _method(ListTaskPushNotificationConfigsRequest, pushing.list_),
    "DeleteTaskPushNotificationConfig": _method(DeleteTaskPushNotificationConfigRequest, pushing.delete, shown=nothing),
}


class Rpc:
    """Answers JSON-RPC requests by their methods."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods

    async def answer(self, request: Request) -> Response:
        """Answer one request. Raises what an HTTP status tells: Problem, ToolfleetError."""
        id_: Any = None
        try:
            body = await _body(request)
            id_ = body.get("id")
            method = self._method(body, request)
            params = body.get("params") or {}
            if not isinstance(params, dict):
                raise InvalidParamsError("`params` is an object")
            door, grant = request.app.state.door, request.state.grant
            asked = Asked(door, grant, request, params, protocol=method.version)
            return await _answered(id_, method, asked)
        except REFUSALS as error:
            known = in_protocol(error)
            if known is None:
                raise
            return _json(_refused(id_, known))

    def _method(self, body: Mapping[str, Any], request: Request) -> Method:
        name = body.get("method")
        method = self._methods.get(name) if isinstance(name, str) else None
        if method is None:
            raise MethodNotFoundError(f"there is no method {str(name)[:100]!r} here")
        must_be_version(request, method.version)
        return method


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = await StrictJson(request.scope, request.receive).json()
    except orjson.JSONDecodeError as error:
        raise JSONParseError(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise InvalidRequestError('a request is one object with "jsonrpc": "2.0"; several at once are not taken')
    if isinstance(body.get("id"), bool | float | dict | list):
        raise InvalidRequestError("the id of a request is a string, a whole number or null")
    return body


async def _answered(id_: Any, method: Method, asked: Asked) -> Response:
    try:
        params = method.read(asked.params)
    except (AttributeError, TypeError, ValueError) as error:  # what the reader of the protocol's records lets through
        raise ParseError(str(error)) from None
    verbs.must_be_whole(asked, params)
    if method.stream is not None:
        return await _streamed(id_, method, asked, method.stream(asked, params))
    assert method.verb is not None  # noqa: S101  # a method has one of them
    return _json(_result(id_, method.shown(await method.verb(asked, params))))


async def _streamed(id_: Any, method: Method, asked: Asked, events: AsyncGenerator[Event, None]) -> Response:
    """Return a stream that has begun: what keeps it from beginning is told without one."""
    first = await anext(events)

    async def framed() -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            yield _data(_result(id_, method.shown(first)))
            try:
                async for event in events:
                    yield _data(_result(id_, method.shown(event)))
            except REFUSALS as error:
                yield b"event: error\n" + _data(_refused(id_, broken_off(error)))

    def farewell() -> bytes:
        return b"event: error\n" + _data(_refused(id_, broken_off(A2AError(STOPPING))))

    return EventStream(asked.door, framed(), farewell=farewell)


def _result(id_: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def _refused(id_: Any, error: A2AError) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": rpc_error(error)}


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type=MEDIA_TYPE)


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
