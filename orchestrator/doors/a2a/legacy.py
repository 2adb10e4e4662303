"""Protocol 0.3 over JSON-RPC: its methods, read into the records of 1.0 and shown in its own.

By the SDK's conversions; what a verb does is decided elsewhere, and once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from a2a.compat.v0_3 import conversions, types as old
from a2a.types import GetExtendedAgentCardRequest, ListTaskPushNotificationConfigsResponse
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import to_stream_response
from pydantic import BaseModel, ValidationError

from toolfleet.orchestrator.doors.a2a import pushing, verbs
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.rpc import Method, nothing
from toolfleet.orchestrator.doors.a2a.updates import Event
from toolfleet.orchestrator.webhooks.push_records import Protocol

V0_3: Final[Protocol] = "0.3"


def _reading(record: type[BaseModel], name: str, to_core: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    def read(params: Mapping[str, Any]) -> Any:
        try:
            asked = record.model_validate({"jsonrpc": "2.0", "id": "", "method": name, "params": params or None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InvalidParamsError(f"{where}: {first['msg']}"[:500]) from None
        return to_core(asked)

    return read


def _shown(to_compat: Callable[[Any], BaseModel]) -> Callable[[Any], Any]:
    def shown(core: Any) -> Any:
        return to_compat(core).model_dump(mode="json", by_alias=True, exclude_none=True)

    return shown


def _event(event: Event) -> Any:
    told = conversions.to_compat_stream_response(to_stream_response(event), "")
    return told.result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _nothing(_asked: Any) -> GetExtendedAgentCardRequest:
    return GetExtendedAgentCardRequest()


Verb = Callable[[Asked, Any], Awaitable[Any]]


def _methods() -> dict[str, Method]:
    task, card = _shown(conversions.to_compat_task), _shown(conversions.to_compat_agent_card)
    c = conversions
    told: list[tuple[str, type[BaseModel], Callable[[Any], Any], Verb, Callable[[Any], Any]]] = [
        ("message/send", old.SendMessageRequest, c.to_core_send_message_request, verbs.send, task),
        ("tasks/get", old.GetTaskRequest, c.to_core_get_task_request, verbs.get, task),
        ("tasks/cancel", old.CancelTaskRequest, c.to_core_cancel_task_request, verbs.cancel, task),
        (
            "agent/getAuthenticatedExtendedCard",
            old.GetAuthenticatedExtendedCardRequest,
            _nothing,
            verbs.show_extended_card,
            card,
        ),
    ]
    found = {
        name: Method(V0_3, _reading(record, name, to_core), verb, shown=shown)
        for name, record, to_core, verb, shown in told
    }
    found |= _push_methods()
    found["message/stream"] = Method(
        V0_3,
        _reading(old.SendStreamingMessageRequest, "message/stream", c.to_core_send_message_request),
        stream=verbs.send_streaming,
        shown=_event,
    )
    found["tasks/resubscribe"] = Method(
        V0_3,
        _reading(old.TaskResubscriptionRequest, "tasks/resubscribe", c.to_core_subscribe_to_task_request),
        stream=verbs.subscribe,
        shown=_event,
    )
    return found


def _push_methods() -> dict[str, Method]:
    c, name = conversions, "tasks/pushNotificationConfig/"
    config = _shown(c.to_compat_task_push_notification_config)

    def configs(found: ListTaskPushNotificationConfigsResponse) -> Any:
        return [config(each) for each in found.configs]

    told: list[tuple[str, type[BaseModel], Callable[[Any], Any], Verb, Callable[[Any], Any]]] = [
        (
            "set",
            old.SetTaskPushNotificationConfigRequest,
            c.to_core_create_task_push_notification_config_request,
            pushing.create,
            config,
        ),
        (
            "get",
            old.GetTaskPushNotificationConfigRequest,
            c.to_core_get_task_push_notification_config_request,
            pushing.get,
            config,
        ),
        (
            "list",
            old.ListTaskPushNotificationConfigRequest,
            c.to_core_list_task_push_notification_config_request,
            pushing.list_,
            configs,
        ),
        (
            "delete",
            old.DeleteTaskPushNotificationConfigRequest,
            c.to_core_delete_task_push_notification_config_request,
            pushing.delete,
            nothing,
        ),
    ]
    return {
        f"{name}{verb_name}": Method(V0_3, _reading(record, f"{name}{verb_name}", to_core), verb, shown=shown)
        for verb_name, record, to_core, verb, shown in told
    }


METHODS: Final = _methods()
