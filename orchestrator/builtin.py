"""The tools that the orchestrator itself answers: with them a model asks about submitted tasks, and cancels them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.cancel import Canceller, Unwanted
from orchestrator.handles import HandleRecord, Handles, Status
from orchestrator.refusals import bad_arguments
from toolfleet.calls import Effect, Failed, Returned
from toolfleet.tool import ToolSpec

MAX_WAIT_MS: Final = 600_000

CANCEL_WAIT_S: Final = 5.0
"""How long a cancelled task may take to say that it has ended before the model gets its answer."""

TASK_RESULT: Final = "task_result"
TASK_CANCEL: Final = "task_cancel"


class TaskResultArguments(BaseModel):
    """What the model passes to `task_result`."""

    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(description="the task_id that the submitted call was answered with")
    block: bool = Field(default=True, description="wait for the result instead of asking again and again")
    timeout_ms: int = Field(default=30_000, ge=0, le=MAX_WAIT_MS, description="how long to wait, in milliseconds")


class TaskCancelArguments(BaseModel):
    """What the model passes to `task_cancel`."""

    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(description="the task_id that the submitted call was answered with")


def _built_in(name: str, description: str, arguments: type[BaseModel], effect: Effect) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        input_schema=arguments.model_json_schema(),
        effect=effect,
        queue="orchestrator",
    )


BUILT_IN: Final = {
    TASK_RESULT: _built_in(
        TASK_RESULT,
        "Get the result of a submitted task, waiting for it if asked to. Also tells how far it has come.",
        TaskResultArguments,
        Effect.READ_ONLY,
    ),
    TASK_CANCEL: _built_in(TASK_CANCEL, "Cancel a submitted task.", TaskCancelArguments, Effect.IDEMPOTENT),
}
"""Offered to the model in runs with slow="handle"; answered by the orchestrator, never sent to a worker."""


class BuiltIn:
    """Answers the built-in tools. `fetched` hears of every call whose final result the model has been given."""

    def __init__(self, handles: Handles, canceller: Canceller) -> None:
        self._handles = handles
        self._canceller = canceller

    async def answer(
        self, name: str, arguments: str, run_id: str, fetched: Callable[[str, Returned | Failed], None]
    ) -> Returned | Failed:
        """The result of one call of a built-in tool."""
        try:
            if name == TASK_RESULT:
                return await self._task_result(
                    TaskResultArguments.model_validate_json(arguments or "{}"), run_id, fetched
                )
            return await self._task_cancel(TaskCancelArguments.model_validate_json(arguments or "{}"), run_id, fetched)
        except ValidationError as error:
            return bad_arguments(name, error)

    async def _task_result(
        self, asked: TaskResultArguments, run_id: str, fetched: Callable[[str, Returned | Failed], None]
    ) -> Returned:
        wait_s = asked.timeout_ms / 1000 if asked.block else 0.0
        status = await self._handles.status(asked.task_id, run_id, wait_s=wait_s)
        if status.result is not None:
            fetched(status.call_id, status.result)
        return Returned(content=status.for_model())

    async def _task_cancel(
        self, asked: TaskCancelArguments, run_id: str, fetched: Callable[[str, Returned | Failed], None]
    ) -> Returned:
        status = await self._handles.status(asked.task_id, run_id)
        record = await self._handles.find(asked.task_id, run_id)
        if record is not None and not status.is_terminal:
            status = await self._cancel(record, asked.task_id)
        if status.result is not None:
            fetched(status.call_id, status.result)
        return Returned(content=status.for_model())

    async def _cancel(self, record: HandleRecord, handle: str) -> Status:
        unwanted = Unwanted(record.call_id, record.tool, record.deadline_unix_s)
        await self._canceller.cancel([unwanted])
        status = await self._handles.status(handle, record.run_id, wait_s=CANCEL_WAIT_S)
        if status.status == "queued":
            await self._canceller.end_unstarted([unwanted])
            status = await self._handles.status(handle, record.run_id)
        return status
