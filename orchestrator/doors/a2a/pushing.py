"""Push notification configurations of tasks: made, shown, listed and taken away, in the protocol's records.

They are kept beside the run, and what is told goes the way of webhooks. Token and credentials are shown to whoever
gives them, in the answer to that, and to nobody again.
"""

from __future__ import annotations

from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    SendMessageConfiguration,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.http.access import must_have
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.webhooks.push_records import ID_CHARS_MAX, PushConfig


async def create(asked: Asked, params: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """Have a task told of at a URL, in the place of a configuration with the same id."""
    must_have(asked.grant, Scope.RUN)
    await asked.door.must_see(params.task_id, asked.grant)
    config = await _checked(asked, params.task_id, params)
    await keep(asked, config)
    answer = TaskPushNotificationConfig()
    answer.CopyFrom(params)
    answer.id, answer.url = config.config_id, config.url
    return answer


async def get(asked: Asked, params: GetTaskPushNotificationConfigRequest) -> TaskPushNotificationConfig:
    """Return a configuration without its secrets; without an id the one that has the task's."""
    configs = await _of_task(asked, params.task_id)
    config = configs.get(params.id or params.task_id)
    if config is None:
        raise TaskNotFoundError(f"task {params.task_id} has no push notification configuration {params.id[:100]!r}")
    return _shown(config)


async def list_(
    asked: Asked, params: ListTaskPushNotificationConfigsRequest
) -> ListTaskPushNotificationConfigsResponse:
    """Return all of a task's configurations, without their secrets: one page always has room for them."""
    configs = await _of_task(asked, params.task_id)
    return ListTaskPushNotificationConfigsResponse(configs=[_shown(each) for each in configs.values()])


async def delete(asked: Asked, params: DeleteTaskPushNotificationConfigRequest) -> None:
    """Have nothing told there any more. One that is not there is no error: it may be deleted twice."""
    must_have(asked.grant, Scope.RUN)
    await asked.door.must_see(params.task_id, asked.grant)
    await asked.door.pushes.drop(params.task_id, params.id, tenant=asked.grant.tenant)


async def wanted_config(asked: Asked, task_id: str, wanted: SendMessageConfiguration) -> PushConfig | None:
    """Return what a message says of where its task is to be told of, if it may be kept."""
    if not wanted.HasField("task_push_notification_config"):
        return None
    return await _checked(asked, task_id, wanted.task_push_notification_config)


async def keep(asked: Asked, config: PushConfig | None) -> None:
    """Store a configuration that was checked, if there is one."""
    if config is not None:
        await asked.door.pushes.keep(config)


async def _checked(asked: Asked, task_id: str, params: TaskPushNotificationConfig) -> PushConfig:
    if len(params.id) > ID_CHARS_MAX:
        raise InvalidParamsError(f"the id of a configuration has {ID_CHARS_MAX} characters at most")
    config = PushConfig(
        config_id=params.id or task_id,
        run_id=task_id,
        tenant=asked.grant.tenant,
        url=params.url,
        protocol=asked.protocol,
        base_url=asked.base_url,
        scheme=params.authentication.scheme,
    )
    token, credentials = params.token, params.authentication.credentials
    return await asked.door.pushes.checked(config, token=token, credentials=credentials)


async def _of_task(asked: Asked, task_id: str) -> dict[str, PushConfig]:
    must_have(asked.grant, Scope.PAYLOADS)  # a URL may hold a secret
    await asked.door.must_see(task_id, asked.grant)
    return await asked.door.pushes.of_run(task_id)


def _shown(config: PushConfig) -> TaskPushNotificationConfig:
    shown = TaskPushNotificationConfig(id=config.config_id, task_id=config.run_id, url=config.url)
    if config.scheme:
        shown.authentication.CopyFrom(AuthenticationInfo(scheme=config.scheme))
    return shown
