"""The tools that the orchestrator answers: a model asks about submitted tasks, cancels them, reads long results on."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolfleet.calls import Effect, Failed, Returned
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.run.refusals import bad_arguments
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.handles import NO_TASKS, Handles, Status, Tasks
from toolfleet.read_result import READ_RESULT
from toolfleet.tool import ToolSpec

MAX_WAIT_MS: Final = 600_000

MAX_TASKS: Final = 100
"""Tasks that one call may ask about."""

CANCEL_WAIT_S: Final = 5.0
"""How long a cancelled task may take to say that it has ended before the model gets its answer."""

ANSWERS_MAX: Final = 10_000
"""Answers that are remembered for models that ask again too soon."""

TASK_RESULT: Final = "task_result"
TASK_CANCEL: Final = "task_cancel"

Fetched = Callable[[str, Returned | Failed], None]

SEARCH_TOOLS: Final = "search_tools"

Late = Callable[[Status], Awaitable[Status]]
"""What is done with a late result before the model is given it."""


def _without_defaults(schema: dict[str, Any]) -> None:
    """Empty defaults would look to a model like values worth passing."""
    for name in ("task_id", "task_ids"):
        schema["properties"][name].pop("default", None)


class TaskArguments(BaseModel):
    """Which tasks a model means, one or several: what it passes to `task_cancel`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_without_defaults)

    task_id: str = Field(default="", description="the task_id that the submitted call was answered with")
    task_ids: list[str] = Field(
        default_factory=list, max_length=MAX_TASKS, description="several of them, instead of task_id"
    )

    @model_validator(mode="after")
    def _names_tasks(self) -> Self:
        if self.task_id and self.task_ids:
            raise ValueError("pass task_id for one task or task_ids for several, not both")
        if "task_ids" in self.model_fields_set and not self.task_ids and not self.task_id:
            raise ValueError("task_ids is empty: name at least one task")
        if not self.task_id and not self.task_ids:
            raise ValueError("task_id is missing: pass the task_id that the submitted call was answered with")
        return self

    @property
    def tasks(self) -> tuple[str, ...]:
        """Each task once, in the order given."""
        return tuple(dict.fromkeys(self.task_ids)) or (self.task_id,)


class TaskResultArguments(TaskArguments):
    """What the model passes to `task_result`."""

    block: bool = Field(default=True, description="wait for the result instead of asking again and again")
    timeout_ms: int = Field(default=30_000, ge=0, le=MAX_WAIT_MS, description="how long to wait, in milliseconds")
    wait_for: Literal["any", "all"] = Field(
        default="all", description="with task_ids: wait until all of them are done, or until any one is"
    )


def _built_in(name: str, description: str, arguments: type[BaseModel], effect: Effect) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        input_schema=arguments.model_json_schema(),
        effect=effect,
        queue=OWN_QUEUE,
    )


BUILT_IN: Final = {
    TASK_RESULT: _built_in(
        TASK_RESULT,
        "Get the result of a submitted task, or of several, waiting if asked to. Also tells how far they have come.",
        TaskResultArguments,
        Effect.READ_ONLY,
    ),
    TASK_CANCEL: _built_in(TASK_CANCEL, "Cancel a submitted task, or several.", TaskArguments, Effect.IDEMPOTENT),
    READ_RESULT.name: READ_RESULT.model_copy(update={"queue": OWN_QUEUE}),
}
"""Answered by the orchestrator, never sent to a worker."""


def built_in_for(run: Run, *, run_in_background: bool) -> dict[str, ToolSpec]:
    """Those that a run's model has a use for; `run_in_background`: it may have calls of a tool that it is offered.

    Tasks with slow="handle", or where it may have calls run in the background, or had; reading on once a result was too
    large.
    """
    tally = run.tally
    has_tasks = run_in_background or run.terms.slow == "handle" or tally.has_tasks
    if not (has_tasks or tally.has_artifacts):
        return {}
    names = [TASK_RESULT, TASK_CANCEL] if has_tasks else []
    if tally.has_artifacts:
        names.append(READ_RESULT.name)
    return {name: BUILT_IN[name] for name in names}


class BuiltIn:
    """Answers the built-in tools about tasks. `fetched` hears of each call whose final result the model is given."""

    def __init__(self, handles: Handles, canceller: Canceller) -> None:
        self._handles = handles
        self._canceller = canceller
        self._answers = Answers()

    async def answer(
        self,
        name: str,
        arguments: str,
        run_id: str,
        *,
        fetched: Fetched,
        late: Late,
        tasks: Tasks = NO_TASKS,
        told: Callable[[Status], Status] = lambda status: status,
    ) -> Returned | Failed:
        """The result of a call of `task_result` or `task_cancel`; `tasks` are those that the run's history knows.

        `late` makes of each task what is known of it from here on, `fetched` hears of that, and `told` puts it in the
        words that the model reads.
        """
        try:
            asked = (TaskResultArguments if name == TASK_RESULT else TaskArguments).model_validate_json(
                arguments or "{}"
            )
        except ValidationError as error:
            return bad_arguments(name, error)
        if isinstance(asked, TaskResultArguments):
            statuses = await self._results(asked, run_id, tasks)
        else:
            statuses = await self.cancel(asked.tasks, run_id, tasks)
        statuses = [await late(status) for status in statuses]
        for status in statuses:
            if status.result is not None:
                fetched(status.call_id, status.result)
        statuses = [told(status) for status in statuses]
        if not asked.task_ids:
            return Returned(content=statuses[0].for_model())
        return Returned(content=orjson.dumps({"tasks": [status.shown() for status in statuses]}).decode())

    async def cancel(self, handles: Sequence[str], run_id: str, tasks: Tasks = NO_TASKS) -> list[Status]:
        """Cancel tasks of a run; how each has ended, or stands if it does not end soon. Raises StoreUnreachable."""
        statuses = await self._statuses(handles, run_id, tasks)
        requests = {}
        for status in statuses:
            record = None if status.is_terminal else await self._handles.find(status.task_id, run_id, tasks)
            if record is not None:
                requests[status.task_id] = CancelRequest(record.call_id, record.tool, record.deadline_unix_s)
        if not requests:
            return statuses
        await self._canceller.cancel(list(requests.values()))
        # Who is seen in the queue after it was marked will never start.
        statuses = await self._statuses(handles, run_id, tasks)
        await self._canceller.end_unstarted(
            requests[each.task_id]
            for each in statuses
            if each.state is CallState.QUEUED and each.queue_position is not None
        )
        await self._handles.wait(list(requests), run_id, wait_s=CANCEL_WAIT_S, until_all=True, tasks=tasks)
        statuses = await self._statuses(handles, run_id, tasks)
        never_begun = [requests[each.task_id] for each in statuses if each.state is CallState.QUEUED]
        if not never_begun:
            return statuses
        await self._canceller.end_unstarted(never_begun)
        return await self._statuses(handles, run_id, tasks)

    async def _results(self, asked: TaskResultArguments, run_id: str, tasks: Tasks) -> list[Status]:
        if asked.block:
            await self._handles.wait(
                asked.tasks, run_id, wait_s=asked.timeout_ms / 1000, until_all=asked.wait_for == "all", tasks=tasks
            )
            statuses = await self._statuses(asked.tasks, run_id, tasks)
        else:
            statuses = [await self._unhurried(handle, run_id, tasks) for handle in asked.tasks]
        return statuses

    async def _statuses(self, handles: Sequence[str], run_id: str, tasks: Tasks) -> list[Status]:
        statuses = [await self._handles.status(handle, run_id, tasks=tasks) for handle in handles]
        for status in statuses:
            self._answers.remember(run_id, status)
        return statuses

    async def _unhurried(self, handle: str, run_id: str, tasks: Tasks) -> Status:
        """How a task stands; who asks again too soon gets the same answer, unless there is a result by now."""
        early = self._answers.given_lately(run_id, handle)
        if early is None or await self._handles.has_ended(early.call_id):
            [status] = await self._statuses([handle], run_id, tasks)
            return status
        return early


class Answers:
    """The last answer about each task that goes on, for models that ask again before there can be news."""

    def __init__(self) -> None:
        self._given: OrderedDict[tuple[str, str], tuple[float, Status]] = OrderedDict()

    def remember(self, run_id: str, status: Status) -> None:
        """This was answered now."""
        self._given.pop((run_id, status.task_id), None)
        if status.is_terminal:
            return
        self._given[run_id, status.task_id] = time.monotonic(), status
        if len(self._given) > ANSWERS_MAX:
            self._given.popitem(last=False)

    def given_lately(self, run_id: str, handle: str) -> Status | None:
        """The last answer with a hint, until its `poll_after_s` has passed."""
        given_at, status = self._given.get((run_id, handle), (0.0, None))
        if status is None or status.poll_after_s is None:
            return None
        ago_s = time.monotonic() - given_at
        left_s = status.poll_after_s - ago_s
        if left_s <= 0:
            return None
        hint = f"asked {ago_s:.1f} s ago; next answer in {left_s:.1f} s; use block=true to wait"
        return status.model_copy(
            update={"message": hint, "age_s": round(status.age_s + ago_s, 1), "poll_after_s": round(left_s, 1)}
        )
