"""One `tools/call`: its result, a task for a client that knows tasks, or the task's id in words for one that does not.

Whoever stops waiting cancels the call, on its worker too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import mcp_types as types
from mcp.server.mcpserver import require_client_extension
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolfleet.asking import ANSWERS, QUESTIONS
from toolfleet.calls import Effect, Failed, Returned, Submitted
from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import Caller
from toolfleet.orchestrator.doors.mcp.progress_notifications import Observed
from toolfleet.orchestrator.doors.mcp.rounds import (
    APPROVAL,
    Requests,
    Round,
    approval_request,
    askable,
    asked,
    can_elicit,
    requests_of,
)
from toolfleet.orchestrator.doors.mcp.rpc_errors import unknown_tool
from toolfleet.orchestrator.doors.mcp.tasks import EXTENSION, Context, created, knows_tasks
from toolfleet.orchestrator.doors.mcp.tickets import Ticket, Tickets
from toolfleet.orchestrator.doors.mcp.tool_listing import still_running, text_result, tool_result
from toolfleet.orchestrator.errors import HandleNotFound
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.run.refusals import bad_arguments, denied
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.tools.builtin import MAX_WAIT_MS, TASK_CANCEL, TASK_RESULT
from toolfleet.supervision import Errands
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.mcp")

LOOK_EVERY_S: Final = 1.0
"""How often a call that became slow is asked how far it is; its result is pushed."""


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


Answer = types.CallToolResult | types.InputRequiredResult | dict[str, Any]
"""What a request is answered with: a result, questions to its client, or a task."""


class ToolCaller:
    """Performs calls."""

    def __init__(self, orchestrator: Orchestrator, tickets: Tickets, errands: Errands) -> None:
        self._orchestrator = orchestrator
        self._tickets = tickets
        self._errands = errands
        self._wait_s = orchestrator.settings.mcp_wait_s

    async def call(self, ctx: Context, params: types.CallToolRequestParams, caller: Caller) -> Answer:
        """Perform the call of one request. Raises MCPError for a tool that is not offered to this caller."""
        with_tasks = knows_tasks(ctx)
        if params.name in STATUS_TOOLS and not with_tasks:
            return await self._status(params, caller)
        offered = await self._orchestrator.catalog.offered()
        name = NameMap(offered).to_catalog(params.name)
        spec = offered.get(name)
        if spec is None or not caller.may_call(name):
            raise unknown_tool(params.name)
        if spec.requires_approval and not caller.may_approve:
            return tool_result(denied(spec.name, "it needs approval, which its caller may not give"), spec)
        if self._wait_s == 0 and spec.long_running and not with_tasks:
            require_client_extension(ctx, EXTENSION)
        round_ = Round.of(params)
        while True:
            requests, result = await self._go_on(ctx, spec, params.arguments or {}, caller, round_)
            if result is not None:
                return result
            following = await asked(ctx, round_, requests)
            if not isinstance(following, Round):
                return following
            round_ = following

    async def _go_on(
        self, ctx: Context, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, round_: Round
    ) -> tuple[Requests, Answer | None]:
        """Take the call as far as it goes with what is settled: to its result, or to what has to be asked first."""
        if spec.requires_approval and not round_.is_approved and can_elicit(ctx):
            if APPROVAL not in round_.given:
                return {APPROVAL: approval_request(spec, arguments)}, None
            if (said := round_.given[APPROVAL].get("action")) != "accept":
                return {}, tool_result(denied(spec.name, f"its user was asked, and said {said}"), spec)
            log.info("mcp_call_approved", tool=spec.name, tenant=caller.tenant, subject=caller.subject)
            round_ = round_.approved()
        performed = await self._observed(ctx, spec, arguments, caller, round_)
        questions = performed.attributes.get(QUESTIONS) if isinstance(performed, Returned) else None
        if questions is None:
            return {}, tool_result(performed, spec) if isinstance(performed, Returned | Failed) else performed
        return askable(ctx, requests_of(questions)), None

    async def _observed(
        self, ctx: Context, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, round_: Round
    ) -> Returned | Failed | Answer:
        """Perform the call, and tell its client of it meanwhile."""
        observed = Observed(ctx, spec.name)
        context = {**caller.context, ANSWERS: dict(round_.answers)} if round_.answers else caller.context
        try:
            async with observed.telling():
                asking = replace(caller, context=context)
                result = await self._perform(spec, arguments, asking, observed, with_tasks=knows_tasks(ctx))
                if isinstance(result, Returned | Failed):
                    observed.ended(result)
                return result
        except asyncio.CancelledError:
            if observed.call_id:
                self._errands.run(self._cancel(observed.call_id))
            raise

    async def _perform(
        self, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, observed: Observed, *, with_tasks: bool
    ) -> Returned | Failed | Answer:
        give_up_at = time.monotonic() + self._wait_s
        result = await self._orchestrator.call(
            spec.name,
            arguments,
            # A client that knows tasks waits no longer than the tool's own patience; any other as long as it can.
            patience_s=None if with_tasks else self._wait_s,
            context=caller.context,
            tenant=caller.tenant,
            subject=caller.subject,
            on_event=observed.event,
        )
        if not isinstance(result, Submitted):
            return result
        ticket = self._tickets.issue(result.handle, caller.tenant)
        if with_tasks:
            return created(ticket)
        return await self._wait_for_result(ticket, spec, give_up_at, observed)

    async def _wait_for_result(
        self, ticket: Ticket, spec: ToolSpec, give_up_at: float, observed: Observed
    ) -> Returned | Failed | Answer:
        """Wait for the result of a call that has a handle. Returns that handle when the client can wait no longer."""
        while (left_s := give_up_at - time.monotonic()) > 0:
            status = await self._orchestrator.task(
                ticket.handle, wait_s=min(left_s, LOOK_EVERY_S), tenant=ticket.tenant
            )
            if status.result is not None:
                return status.result
            if status.progress is not None:
                observed.progress(status.progress.fraction, status.progress.message)
        return still_running(spec.name, ticket.task_id)

    # --- the status tools ---------------------------------------------------------------------------------------

    async def _status(self, params: types.CallToolRequestParams, caller: Caller) -> types.CallToolResult:
        of_result = params.name == TASK_RESULT
        try:
            asked = (HandleResultArguments if of_result else HandleArguments).model_validate(params.arguments or {})
        except ValidationError as error:
            return tool_result(bad_arguments(params.name, error), None)
        try:
            ticket = self._tickets.read(asked.task_id, caller.tenant)
            status = await self._look_up(ticket, asked)
        except HandleNotFound as unknown:
            return types.CallToolResult(content=[types.TextContent(text=str(unknown))], is_error=True)
        if status.result is not None and of_result:
            return tool_result(status.result, (await self._orchestrator.catalog.offered()).get(status.tool))
        return text_result({**status.shown(), "task_id": ticket.task_id})

    async def _look_up(self, ticket: Ticket, asked: HandleArguments) -> Status:
        if not isinstance(asked, HandleResultArguments):
            return await self._orchestrator.cancel_task(ticket.handle, tenant=ticket.tenant)
        wait_s = min(asked.timeout_ms / 1000, self._wait_s) if asked.block else 0.0
        return await self._orchestrator.task(ticket.handle, wait_s=wait_s, tenant=ticket.tenant)

    async def _cancel(self, call_id: str) -> None:
        with suppress(ToolfleetError):  # it has ended meanwhile, or its deadline ends it
            await self._orchestrator.cancel_call(call_id)
