"""One `tools/call`: its result, a task for a client that knows tasks, or the task's id in words for one that does not.

Whoever stops waiting cancels the call, on its worker too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import mcp_types as types
from mcp.server.mcpserver import require_client_extension
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

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
    approval_request,
    askable,
    asked,
    can_elicit,
    input_required,
    questions_of,
)
from toolfleet.orchestrator.doors.mcp.rpc_errors import unknown_tool
from toolfleet.orchestrator.doors.mcp.running_calls import RunningCall, ask_meanwhile, is_asked_in_rounds
from toolfleet.orchestrator.doors.mcp.running_questions import Reader, RunningQuestions
from toolfleet.orchestrator.doors.mcp.shown_results import Showing
from toolfleet.orchestrator.doors.mcp.status_tools import STATUS_TOOLS, StatusTools
from toolfleet.orchestrator.doors.mcp.tasks import EXTENSION, Context, created, knows_tasks
from toolfleet.orchestrator.doors.mcp.tickets import Tickets
from toolfleet.orchestrator.doors.mcp.tool_listing import still_running, tool_result
from toolfleet.orchestrator.errors import ApprovalMissing
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.run.refusals import denied
from toolfleet.orchestrator.run.updates import CallAsks, RunUpdate
from toolfleet.read_result import READ_RESULT
from toolfleet.supervision import Errands
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.mcp")

NOT_THEIRS: Final = "it needs approval, which its caller may not give"

Answer = types.CallToolResult | types.InputRequiredResult | dict[str, Any]
"""What a request is answered with: a result, questions to its client, or a task."""

Performed = Returned | Failed | Asks | Answer
"""What comes of a call within one request."""


class ToolCaller:
    """Performs calls."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        tickets: Tickets,
        errands: Errands,
        approvals: Approvals,
        questions: RunningQuestions,
    ) -> None:
        self._orchestrator = orchestrator
        self._questions = questions
        self._tickets = tickets
        self._approvals = approvals
        self._errands = errands
        self._status_tools = StatusTools(orchestrator, tickets, questions)
        self._wait_s = orchestrator.settings.mcp_wait_s

    async def call(self, ctx: Context, params: types.CallToolRequestParams, caller: Caller) -> Answer:
        """Perform the call of one request. Raises MCPError for a tool that is not offered to this caller."""
        showing = Showing(self._orchestrator, caller.tenant, ctx.protocol_version)
        if params.name == READ_RESULT.name:
            return await self._read_on(params, caller, showing)
        if params.name in STATUS_TOOLS and not knows_tasks(ctx):
            return await self._status_tools.answer(params, caller, showing)
        round_ = Round.of(params)
        offered = await self._orchestrator.catalog.offered()
        name = NameMap(offered).to_catalog(params.name)
        spec = offered.get(name)
        if round_.goes_on and caller.may_call(name):  # also while no worker serves the tool
            step = await self._come_back(ctx, name, spec, caller, round_)
            return input_required(step) if isinstance(step, Asks) else step
        if spec is None or not caller.may_call(name):
            raise unknown_tool(params.name)
        return await self._make(ctx, spec, params.arguments or {}, caller, round_)

    async def _make(
        self, ctx: Context, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, round_: Round
    ) -> Answer:
        """Make a call, round by round where its client is asked for something."""
        if spec.requires_approval and not caller.may_approve:
            return tool_result(denied(spec.name, NOT_THEIRS), spec)
        if self._wait_s == 0 and spec.long_running and not knows_tasks(ctx):
            require_client_extension(ctx, EXTENSION)
        if round_.brings_approval:
            await self._approvals.use(round_.id)
        while True:
            step = await self._go_on(ctx, spec, arguments, caller, round_)
            if not isinstance(step, Asks):
                return step
            following = await asked(ctx, step)
            if not isinstance(following, Round):
                return following
            round_ = following

    async def _come_back(
        self, ctx: Context, tool: str, spec: ToolSpec | None, caller: Caller, round_: Round
    ) -> Answer | Asks:
        """Wait on for a call that goes on, with what its client answers: it is not made again."""
        ticket = self._tickets.read(round_.goes_on, caller.tenant)

        async def perform(observed: Observed) -> Performed:
            call = RunningCall(self._orchestrator, self._questions, ticket, tool, observed, Reader.of(ctx, caller))
            if (again := await call.take(round_)) is not None:
                return again
            if knows_tasks(ctx):
                return created(ticket, asks=False)
            return await call.wait(round_, time.monotonic() + self._wait_s)

        performed = await self._observed(ctx, tool, perform)
        return await self._answer(ctx, performed, spec, caller, round_.ended())

    async def _go_on(
        self, ctx: Context, spec: ToolSpec, arguments: dict[str, Any], caller: Caller, round_: Round
    ) -> Answer | Asks:
        """Take the call as far as it goes with what is settled: to its result, or to what has to be asked first."""
        is_asked = spec.requires_approval or APPROVAL in round_.given
        if is_asked and not round_.is_approved and can_elicit(ctx):
            if APPROVAL not in round_.given:
                return Asks(round_, {APPROVAL: approval_request(spec, arguments)})
            if (said := round_.given[APPROVAL].get("action")) != "accept":
                return tool_result(denied(spec.name, f"its user was asked, and said {said}"), spec)
            log.info("mcp_call_approved", tool=spec.name, tenant=caller.tenant, subject=caller.subject)
            round_ = round_.approved()
        try:
            performed = await self._observed(
                ctx,
                spec.name,
                lambda observed: self._perform(spec, arguments, round_, observed, Reader.of(ctx, caller)),
            )
        except ApprovalMissing:  # since it was looked at above
            if not caller.may_approve:
                return tool_result(denied(spec.name, NOT_THEIRS), spec)
            return Asks(round_, {APPROVAL: approval_request(spec, arguments)})
        return await self._answer(ctx, performed, spec, caller, round_)

    async def _answer(
        self, ctx: Context, performed: Performed, spec: ToolSpec | None, caller: Caller, round_: Round
    ) -> Answer | Asks:
        """Return what a client gets of what has come of its call."""
        if not isinstance(performed, Returned | Failed):
            return performed
        if questions := questions_of(performed):
            return Asks(round_, askable(ctx, questions))
        return await Showing(self._orchestrator, caller.tenant, ctx.protocol_version).result(performed, spec)

    async def _observed(
        self, ctx: Context, tool: str, perform: Callable[[Observed], Awaitable[Performed]]
    ) -> Performed:
        """Perform the call, and tell its client of it meanwhile."""
        observed = Observed(ctx, tool)
        try:
            async with observed.telling():
                performed = await perform(observed)
                if isinstance(performed, Returned | Failed):
                    observed.ended(performed)
                return performed
        except asyncio.CancelledError:
            if observed.call_id:
                self._errands.run(self._cancel(observed.call_id))
            raise

    async def _perform(
        self, spec: ToolSpec, arguments: dict[str, Any], round_: Round, observed: Observed, reader: Reader
    ) -> Performed:
        give_up_at = time.monotonic() + self._wait_s
        caller, with_tasks = reader.caller, knows_tasks(observed.ctx)
        result = await self._orchestrator.call(
            spec.name,
            arguments,
            # A client that knows tasks waits no longer than the tool's own patience; any other as long as it can.
            patience_s=None if with_tasks else self._wait_s,
            context={**caller.context, ANSWERS: dict(round_.answers)} if round_.answers else caller.context,
            tenant=caller.tenant,
            subject=caller.subject,
            on_event=partial(self._heard, observed, reader),
            handle_if_asks=with_tasks or is_asked_in_rounds(reader),
            # Whoever may approve, and cannot be asked, has decided by calling.
            approved=caller.may_approve and (round_.is_approved or not reader.shows_forms),
        )
        if not isinstance(result, Submitted):
            return result
        ticket = self._tickets.issue(result.handle, caller.tenant)
        if with_tasks:
            return created(ticket, asks=observed.asks)
        if spec.background is not None and is_asked_for(arguments):
            return still_running(spec.name, ticket.task_id)
        call = RunningCall(self._orchestrator, self._questions, ticket, spec.name, observed, reader)
        return await call.wait(round_, give_up_at)

    def _heard(self, observed: Observed, reader: Reader, event: RunUpdate) -> None:
        observed.event(event)
        if isinstance(event, CallAsks) and reader.version not in MODERN_PROTOCOL_VERSIONS:
            self._errands.run(ask_meanwhile(self._questions, event, observed, reader))

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
