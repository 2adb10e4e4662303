"""The tools by which clients that know no tasks ask about slow calls: their results, and their end."""

from __future__ import annotations

from typing import Final

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolfleet.calls import Effect
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import Caller
from toolfleet.orchestrator.doors.mcp.running_questions import RunningQuestions, told_elsewhere
from toolfleet.orchestrator.doors.mcp.shown_results import Showing
from toolfleet.orchestrator.doors.mcp.tickets import Ticket, Tickets
from toolfleet.orchestrator.doors.mcp.tool_listing import text_result, tool_result
from toolfleet.orchestrator.errors import HandleNotFound
from toolfleet.orchestrator.run.refusals import bad_arguments
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.tools.builtin import MAX_WAIT_MS, TASK_CANCEL, TASK_RESULT
from toolfleet.tool import ToolSpec


class HandleArguments(BaseModel):
    """The arguments of a status tool: the id of a task."""

    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(description="the task_id that the call was answered with")


class HandleResultArguments(HandleArguments):
    """What a model passes to `task_result`."""

    block: bool = Field(default=True, description="wait for the result instead of asking again and again")
    timeout_ms: int = Field(default=30_000, ge=0, le=MAX_WAIT_MS, description="how long to wait, in milliseconds")


def _status_tool(name: str, description: str, arguments: type[BaseModel], effect: Effect) -> ToolSpec:
    return ToolSpec(name=name, description=description, input_schema=arguments.model_json_schema(), effect=effect)


STATUS_TOOLS: Final = {
    spec.name: spec
    for spec in (
        _status_tool(
            TASK_RESULT,
            "Get the result of a call that was answered with a task_id, or how far it has come.",
            HandleResultArguments,
            Effect.READ_ONLY,
        ),
        _status_tool(
            TASK_CANCEL, "Cancel a call that was answered with a task_id.", HandleArguments, Effect.IDEMPOTENT
        ),
    )
}
"""Offered to clients that know no tasks."""


class StatusTools:
    """Answers calls of them."""

    def __init__(self, orchestrator: Orchestrator, tickets: Tickets, questions: RunningQuestions) -> None:
        self._questions = questions
        self._orchestrator = orchestrator
        self._tickets = tickets
        self._wait_s = orchestrator.settings.mcp_wait_s

    async def answer(
        self, params: types.CallToolRequestParams, caller: Caller, showing: Showing
    ) -> types.CallToolResult:
        """Answer one call. What a client gets wrong is told to its model. Raises StoreUnreachable."""
        of_result = params.name == TASK_RESULT
        try:
            asked = (HandleResultArguments if of_result else HandleArguments).model_validate(params.arguments or {})
        except ValidationError as error:
            return tool_result(bad_arguments(params.name, error), None)
        try:
            ticket = self._tickets.read(asked.task_id, caller.tenant)
            status = await self._look_up(ticket, asked, caller)
        except HandleNotFound as unknown:
            return types.CallToolResult(content=[types.TextContent(text=str(unknown))], is_error=True)
        if status.result is not None and of_result:
            return await showing.result(status.result, (await self._orchestrator.catalog.offered()).get(status.tool))
        shown = {**status.shown(), "task_id": ticket.task_id}
        if not status.is_terminal and (asks := told_elsewhere(await self._questions.of(status.call_id, caller))):
            shown["message"] = f"it {asks}"
        return text_result(shown)

    async def _look_up(self, ticket: Ticket, asked: HandleArguments, caller: Caller) -> Status:
        if not isinstance(asked, HandleResultArguments):
            return await self._orchestrator.cancel_task(ticket.handle, tenant=ticket.tenant, by=caller.known_as)
        wait_s = min(asked.timeout_ms / 1000, self._wait_s) if asked.block else 0.0
        return await self._orchestrator.task(ticket.handle, wait_s=wait_s, tenant=ticket.tenant)
