"""`notifications/tasks`: how a task stands, told to whoever listens to it on `subscriptions/listen`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, cast

import mcp_types as types
from mcp.server.mcpserver import require_client_extension
from pydantic import ConfigDict

from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator.doors.mcp.callers import Caller
from toolfleet.orchestrator.doors.mcp.running_questions import Reader
from toolfleet.orchestrator.doors.mcp.tasks import EXTENSION, Context, Tasks
from toolfleet.orchestrator.doors.mcp.tickets import Ticket
from toolfleet.orchestrator.errors import HandleNotFound

TASK_IDS: Final = "taskIds"
"""The key that the extension adds to what a client listens to."""

MOST_WATCHED: Final = 16

WAIT_S: Final = 1.0
"""How often a task is asked how far it is; its result is pushed."""


class TaskNotificationParams(types.NotificationParams):
    """The task as `tasks/get` tells it."""

    model_config = ConfigDict(extra="allow")


class TaskNotification(types.Notification[TaskNotificationParams, Literal["notifications/tasks"]]):
    """A task has changed."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: TaskNotificationParams


class TaskNews:
    """Watches tasks for streams."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def theirs(self, ctx: Context, asked: types.SubscriptionFilter, caller: Caller) -> Sequence[Ticket]:
        """Return the tasks among those asked for that are this caller's. Raises MCPError if the client knows none."""
        named = (asked.model_extra or {}).get(TASK_IDS)
        if not isinstance(named, list) or not named:
            return ()
        require_client_extension(ctx, EXTENSION)
        task_ids = list(dict.fromkeys(each for each in named if isinstance(each, str)))[:MOST_WATCHED]
        return [ticket for task_id in task_ids if (ticket := self._read(task_id, caller))]

    def acknowledged(self, filter_: types.SubscriptionFilter, tickets: Sequence[Ticket]) -> types.SubscriptionFilter:
        """Return what is acknowledged, with the tasks that will be told of."""
        said = {**filter_.model_dump(by_alias=True, exclude_none=True), TASK_IDS: [each.task_id for each in tickets]}
        return types.SubscriptionFilter.model_validate(said)

    async def watch(
        self,
        ticket: Ticket,
        reader: Reader,
        meta: dict[str, Any],
        tell: Callable[[types.ServerNotification], Awaitable[None]],
    ) -> None:
        """Tell how the task stands, now and whenever that changes, until it has ended; as its reader understands it."""
        told: tuple[object, ...] | None = None
        while True:
            try:
                task = await self._tasks.stand(ticket, reader, wait_s=0.0 if told is None else WAIT_S)
            except StoreUnreachable:
                await asyncio.sleep(WAIT_S)
                continue
            except HandleNotFound:
                return
            if (stands := (task.status, task.status_message, task.input_requests)) != told:
                told = stands
                params = TaskNotificationParams.model_validate({**task.told_on_stream(), "_meta": meta})
                await tell(cast("types.ServerNotification", TaskNotification(params=params)))
            if task.is_terminal:
                return

    def _read(self, task_id: str, caller: Caller) -> Ticket | None:
        try:
            return self._tasks.ticket(task_id, caller)
        except HandleNotFound:
            return None
