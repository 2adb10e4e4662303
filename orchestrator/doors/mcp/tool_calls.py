"""One `tools/call`: its result, a task for a client that knows tasks, or the task's id in words for one that does not.

Whoever stops waiting cancels the call, on its worker too.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import mcp_types as types
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError

from toolfleet.asking import ANSWERS
from toolfleet.background import is_asked_for
from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.approvals import Approvals
from toolfleet.orchestrator.doors.mcp.callers import Caller
from toolfleet.orchestrator.doors.mcp.progress_notifications import Observed
from toolfleet.orchestrator.doors.mcp.rounds import (
    APPROVAL,
    Asks,
    Round,
    answer_in,
    approval_request,
    askable,
    asked,
    asked_meanwhile,
    can_elicit,
    question_request,
    questions_of,
)
from toolfleet.orchestrator.doors.mcp.rpc_errors import unknown_tool
from toolfleet.orchestrator.doors.mcp.shown_results import Showing
from toolfleet.orchestrator.doors.mcp.status_tools import STATUS_TOOLS, StatusTools
from toolfleet.orchestrator.doors.mcp.tasks import EXTENSION, Context, created, knows_tasks
from toolfleet.orchestrator.doors.mcp.tickets import Ticket, Tickets
from toolfleet.orchestrator.doors.mcp.tool_listing import still_running, tool_result
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.run.refusals import denied
from toolfleet.orchestrator.run.updates import CallAsks, RunUpdate
from toolfleet.read_result import READ_RESULT
from toolfleet.supervision import Errands
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.mcp")

LOOK_EVERY_S: Final = 1.0
"""How often a call that became slow is asked how far it is; its result is pushed."""


Answer = types.CallToolResult | types.InputRequiredResult | dict[str, Any]
"""What a request is answered with: a result, questions to its client, or a task."""


class ToolCaller:
    """Performs calls."""

    def __init__(self, orchestrator: Orchestrator, tickets: Tickets, errands: Errands, approvals: Approvals) -> None:
        self._orchestrator = orchestrator
        self._tickets = tickets
        self._approvals = approvals
        self._errands = errands
        self._status_tools = StatusTools(orchestrator, tickets)
        self._wait_s = orchestrator.settings.mcp_wait_s

    async def call(self, ctx: Context, params: types.CallToolRequestParams, caller: Caller) -> Answer:
        """Perform the call of one request. Raises MCPError for a tool that is not offered to this caller."""
        with_tasks = knows_tasks(ctx)
        showing = Showing(self._orchestrator, caller.tenant, ctx.protocol_version)
        if params.name == READ_RESULT.name:
            return await self._read_on(params, caller, showing)
        if params.name in STATUS_TOOLS and not with_tasks:
            return await self._status_tools.answer(params, caller, showing)
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
        if round_.brings_approval:
            await self._approvals.use(round_.id)
        while True:
            step = await self._go_on(ctx, spec, params.arguments or {}, caller, round_)
            if not isinstance(step, Asks):
                return step
            following = await asked(ctx, step)
            if not isinstance(following, Round):
                return following
            round_ = following

    async def _go_on(
        self, ctx: Context, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, round_: Round
    ) -> Answer | Asks:
        """Take the call as far as it goes with what is settled: to its result, or to what has to be asked first."""
        if spec.requires_approval and not round_.is_approved and can_elicit(ctx):
            if APPROVAL not in round_.given:
                return Asks(round_, {APPROVAL: approval_request(spec, arguments)})
            if (said := round_.given[APPROVAL].get("action")) != "accept":
                return tool_result(denied(spec.name, f"its user was asked, and said {said}"), spec)
            log.info("mcp_call_approved", tool=spec.name, tenant=caller.tenant, subject=caller.subject)
            round_ = round_.approved()
        performed = await self._observed(ctx, spec, arguments, caller, round_)
        if not isinstance(performed, Returned | Failed):
            return performed
        if questions := questions_of(performed):
            return Asks(round_, askable(ctx, questions))
        return await Showing(self._orchestrator, caller.tenant, ctx.protocol_version).result(performed, spec)

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
            on_event=partial(self._heard, observed),
        )
        if not isinstance(result, Submitted):
            return result
        ticket = self._tickets.issue(result.handle, caller.tenant)
        if with_tasks:
            return created(ticket)
        if spec.background is not None and is_asked_for(arguments):
            return still_running(spec.name, ticket.task_id)
        return await self._wait_for_result(ticket, spec, give_up_at, observed)

    def _heard(self, observed: Observed, event: RunUpdate) -> None:
        observed.event(event)
        if isinstance(event, CallAsks) and (request := question_request(event.message, event.answer_schema)):
            self._errands.run(self._ask(observed.ctx, event, request))

    async def _ask(self, ctx: Context, event: CallAsks, request: types.InputRequest) -> None:
        """Ask the client's user what the tool asks; whoever answers first, here or at another door, has answered."""
        with suppress(MCPError, ToolfleetError):
            said = await asked_meanwhile(ctx, request)
            if said is None:
                return
            if said.get("action") == "accept":
                value = answer_in(said.get("content") or {}, event.answer_schema)
                await self._orchestrator.answer(event.question_id, value, by="mcp client")
            else:
                await self._orchestrator.decline(event.question_id, str(said.get("action")), by="mcp client")

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

    async def _read_on(
        self, params: types.CallToolRequestParams, caller: Caller, showing: Showing
    ) -> types.CallToolResult:
        """Read on in a large result of the caller's tenant: whatever tools they may call, it was theirs already."""
        result = await self._orchestrator.call(READ_RESULT.name, params.arguments or {}, tenant=caller.tenant)
        assert not isinstance(result, Submitted)  # noqa: S101  # no worker is asked, and nobody waits
        return await showing.result(result, READ_RESULT)

    async def _cancel(self, call_id: str) -> None:
        with suppress(ToolfleetError):  # it has ended meanwhile, or its deadline ends it
            await self._orchestrator.cancel_call(call_id)
