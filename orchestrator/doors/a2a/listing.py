"""`ListTasks`: a tenant's runs as tasks, page by page, or the tasks of one context.

Pages follow one another by when their tasks began, the newest first; on each, those stand first that have changed last.
"""

from __future__ import annotations

import re
from typing import Any, Final

from a2a.types import ListTasksRequest, ListTasksResponse, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import validate_history_length, validate_page_size
from google.protobuf.json_format import MessageToDict

from toolfleet.errors import CallerError
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.contexts import Context
from toolfleet.orchestrator.doors.a2a.shown import task_of
from toolfleet.orchestrator.doors.a2a.standing import ENDS, Standing, standing_of
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.run.states import State

PAGE: Final = 50

OF_CONTEXT: Final = "c"
"""How the tokens begin of pages of one context; the number of tasks before follows."""

NUMBER: Final = re.compile(r"\d{1,9}", re.ASCII)

GOING_ON: Final = tuple(state for state in State if not state.is_terminal)

STATES: Final = {
    TaskState.TASK_STATE_UNSPECIFIED: (),
    TaskState.TASK_STATE_WORKING: GOING_ON,
    TaskState.TASK_STATE_INPUT_REQUIRED: GOING_ON,
    TaskState.TASK_STATE_REJECTED: (State.DONE,),
    **{called: (state,) for state, called in ENDS.items()},
}
"""In which states a run may be whose task is called so; no run's is called anything else."""


async def listed(asked: Asked, params: ListTasksRequest) -> ListTasksResponse:
    """Return a page of tasks. One that is filtered may be short, and have another behind it. Raises A2AError."""
    validate_history_length(params)
    if params.HasField("page_size"):
        validate_page_size(params.page_size)
    size = params.page_size or PAGE
    if params.context_id:
        found, token, total = await _of_context(asked, params, size)
    else:
        found, token, total = await _of_tenant(asked, params, size)
    standings = [standing for task_id in found if (standing := await _wanted(asked, params, task_id)) is not None]
    standings.sort(key=lambda standing: standing.updated_ms, reverse=True)
    history = params.history_length if params.HasField("history_length") else None
    tasks = [
        task_of(standing, asked.base_url, history=history, artifacts=params.include_artifacts) for standing in standings
    ]
    return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=total)


def in_json(found: ListTasksResponse) -> dict[str, Any]:
    """Return a page as JSON: with an empty token, too, and without artifacts where no task has any shown."""
    shown: dict[str, Any] = MessageToDict(found, always_print_fields_with_no_presence=True)
    for task, as_json in zip(found.tasks, shown["tasks"], strict=True):
        if not task.artifacts:
            del as_json["artifacts"]
    return shown


Page = tuple[list[str], str, int]
"""Ids, the token of the next page, and how many there are in all."""


async def _of_tenant(asked: Asked, params: ListTasksRequest, size: int) -> Page:
    states = STATES.get(params.status)
    if states is None:
        return [], "", 0
    looking, tenant = asked.door.looking, asked.grant.tenant
    page = await looking.pages.page(before=params.page_token, limit=size, states=states, tenant=tenant)
    tally = await looking.run_states.tally(tenant=tenant)
    total = sum(tally.by_state.get(state, 0) for state in states) if states else tally.runs
    return [head.run_id for head in page.heads], page.before, total


async def _of_context(asked: Asked, params: ListTasksRequest, size: int) -> Page:
    number = params.page_token.removeprefix(OF_CONTEXT)
    if params.page_token and not NUMBER.fullmatch(number):
        raise InvalidParamsError("this pageToken was not given out here: begin without one")
    context, start = Context(asked.door, asked.grant, params.context_id), int(number or 0)
    found, total = await context.tasks(start, size), await context.count()
    return found, f"{OF_CONTEXT}{start + size}" if start + size < total else "", total


async def _wanted(asked: Asked, params: ListTasksRequest, task_id: str) -> Standing | None:
    """Return a task as it stands; None for one that is gone, cannot be read, or is not asked for."""
    try:
        standing = await standing_of(asked.door, asked.grant, task_id)
    except (CallerError, NewerVersion):
        return None
    if params.context_id and not Context(asked.door, asked.grant, params.context_id).has(standing.run):
        return None
    if params.status not in {TaskState.TASK_STATE_UNSPECIFIED, standing.state}:
        return None
    is_new = not params.HasField("status_timestamp_after") or (
        standing.updated_ms >= params.status_timestamp_after.ToMilliseconds()
    )
    return standing if is_new else None
