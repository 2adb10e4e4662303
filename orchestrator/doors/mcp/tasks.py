"""The extension `io.modelcontextprotocol/tasks` of protocol revision 2026-07-28 (SEP-2663): calls as tasks.

Owns the wire format of tasks and its three methods; how a call stands is the fleet's word.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from toolfleet.errors import ToolfleetError
from toolfleet.keys import RESULT_TTL_S
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import Caller, CallerOf
from toolfleet.orchestrator.doors.mcp.rounds import dumped
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors
from toolfleet.orchestrator.doors.mcp.running_questions import (
    Open,
    Reader,
    RunningQuestions,
    must_fit,
    requests_for,
    told_elsewhere,
)
from toolfleet.orchestrator.doors.mcp.shown_results import Showing
from toolfleet.orchestrator.doors.mcp.tickets import Ticket, Tickets
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.handles import POLL_AFTER_S, Status
from toolfleet.supervision import Errands

EXTENSION: Final = "io.modelcontextprotocol/tasks"

Context = ServerRequestContext[Any, Any]
TaskStatus = Literal["working", "input_required", "completed", "cancelled"]
"""Those that a call can have: whatever a tool does is a result, never `failed`."""

ASKED_POLL_MS: Final = 500
"""How soon to look at a task that asks something already."""


class TaskParams(types.RequestParams):
    """The parameters of a request about a task: its id."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to what a task asks, by key; those under keys that are not waited for are ignored."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class McpTask(BaseModel):
    """A task as it is told; `result` stands there once it is completed, `input_requests` while it asks."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    result_type: Literal["task", "complete"]
    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None

    def on_wire(self) -> dict[str, Any]:
        """Return the JSON object of the protocol."""
        return self.model_dump(by_alias=True, exclude_none=True)

    @property
    def is_terminal(self) -> bool:
        """Whether it stays as it is."""
        return self.status in {"completed", "cancelled"}

    def told_on_stream(self) -> dict[str, Any]:
        """Return what a notification says of it."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"result_type"})


def knows_tasks(ctx: Context) -> bool:
    """Return whether this request's client declared the extension; an older revision has no way to carry a task."""
    capabilities = ctx.session.client_capabilities
    declared = (capabilities and capabilities.extensions) or {}
    return EXTENSION in declared and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def created(ticket: Ticket, *, asks: bool) -> dict[str, Any]:
    """Make the answer to a call that became a task, perhaps because it asks. Its handle must be stored by now."""
    at = _iso(ticket.created_unix_s)
    return McpTask(
        result_type="task",
        task_id=ticket.task_id,
        status="working",
        created_at=at,
        last_updated_at=at,
        ttl_ms=RESULT_TTL_S * 1000,
        poll_interval_ms=ASKED_POLL_MS if asks else int(POLL_AFTER_S * 1000),
    ).on_wire()


class Tasks:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        tickets: Tickets,
        caller_of: CallerOf,
        errands: Errands,
        questions: RunningQuestions,
    ) -> None:
        self._orchestrator = orchestrator
        self._questions = questions
        self._tickets = tickets
        self._caller_of = caller_of
        self._errands = errands

    def serve_on(self, server: Server[Any]) -> None:
        """Declare the extension, and answer its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def ticket(self, task_id: str, caller: Caller) -> Ticket:
        """Return what a caller's own task id says. Raises HandleNotFound for any other text."""
        return self._tickets.read(task_id, caller.tenant)

    async def stand(self, ticket: Ticket, reader: Reader, *, wait_s: float = 0.0) -> McpTask:
        """Return how a task stands, as its reader understands it, after waiting so long for its result.

        Raises HandleNotFound, StoreUnreachable.
        """
        status = await self._orchestrator.task(ticket.handle, wait_s=wait_s, tenant=ticket.tenant)
        told = _told(ticket, status)
        if told.status == "working":
            return _asking(told, await self._questions.of(status.call_id, reader.caller), reader)
        if told.status == "completed" and status.result is not None:
            specs = await self._orchestrator.catalog.offered()
            showing = Showing(self._orchestrator, ticket.tenant, reader.version)
            shown = await showing.result(status.result, specs.get(status.tool))
            return told.model_copy(update={"result": dumped(shown)})
        return told

    async def _get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        ticket, reader = self._ticket(ctx, params), Reader.of(ctx, self._caller_of(ctx.request))
        with protocol_errors():
            return (await self.stand(ticket, reader)).on_wire()

    async def _update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        ticket, reader = self._ticket(ctx, params), Reader.of(ctx, self._caller_of(ctx.request))
        with protocol_errors():
            status = await self._orchestrator.task(ticket.handle, tenant=ticket.tenant)
            asked = await self._questions.of(status.call_id, reader.caller)
            must_fit(await self._questions.take(asked, params.input_responses, reader))
        return {}

    async def _cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        ticket = self._ticket(ctx, params)
        with protocol_errors():
            await self._orchestrator.task(ticket.handle, tenant=ticket.tenant)
        # Acknowledged at once: how long it takes to end is its worker's business.
        self._errands.run(self._cancel_ticket(ticket, self._caller_of(ctx.request)))
        return {}

    async def _cancel_ticket(self, ticket: Ticket, caller: Caller) -> None:
        with suppress(ToolfleetError):  # cooperative: whoever asks again sees how it stands
            await self._orchestrator.cancel_task(ticket.handle, tenant=ticket.tenant, by=caller.known_as)

    def _ticket(self, ctx: Context, params: TaskParams) -> Ticket:
        """Return the caller's own ticket. Raises MCPError for a client, a header or an id that will not do."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        require_client_extension(ctx, EXTENSION)
        if ctx.request is not None and decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER)) != params.task_id:
            raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's 'taskId'")
        with protocol_errors():
            return self.ticket(params.task_id, self._caller_of(ctx.request))


def status_word(status: Status) -> TaskStatus:
    """Return the protocol's word for a state. A call that expired or is in doubt has a result for its model."""
    if not status.is_terminal:
        return "working"
    return "cancelled" if status.state is CallState.CANCELLED else "completed"


def _asking(told: McpTask, asked: Open, reader: Reader) -> McpTask:
    """Return a task that works with what it asks: its reader, or somebody at another door."""
    if requests := requests_for(asked, reader):
        first = next(iter(requests))
        message = f"asks: {asked[first].message:.200}"
        shown = {key: dumped(request) for key, request in requests.items()}
        return told.model_copy(update={"status": "input_required", "status_message": message, "input_requests": shown})
    return told.model_copy(update={"status_message": told_elsewhere(asked) or told.status_message})


def _told(ticket: Ticket, status: Status) -> McpTask:
    now = datetime.now(UTC).timestamp()
    return McpTask(
        result_type="complete",
        task_id=ticket.task_id,
        status=status_word(status),
        status_message=_message(status),
        created_at=_iso(ticket.created_unix_s),
        last_updated_at=_iso(now),
        ttl_ms=_ttl_ms(max(0.0, now - ticket.created_unix_s), is_terminal=status.is_terminal),
        poll_interval_ms=None if status.poll_after_s is None else int(status.poll_after_s * 1000),
    )


def _message(status: Status) -> str | None:
    if status.progress is not None:
        return f"{status.progress.fraction:.0%} {status.progress.message}".strip()
    if status.queue_position is not None:
        return f"queued, {status.queue_position} calls before it"
    return status.message or (None if status.is_terminal else status.state)


def _ttl_ms(age_s: float, *, is_terminal: bool) -> int:
    """Return for how long after its creation a task can be asked for at least: a result is kept from its arrival."""
    return int(1000 * (max(age_s, RESULT_TTL_S) if is_terminal else age_s + RESULT_TTL_S))


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
