"""What a client may read: its tenant's runs, and what the operator offers beside the tools.

A resource that is not the caller's is answered as one that does not exist.
"""

from __future__ import annotations

import re
from typing import Final, cast
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolfleet.errors import ArtifactNotFound
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.beside import Beside, Context
from toolfleet.orchestrator.doors.mcp.callers import Caller, CallerOf
from toolfleet.orchestrator.doors.mcp.kept import ARTIFACT_TEMPLATE, artifact_contents
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors
from toolfleet.orchestrator.errors import BadCursor, RunNotFound
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_store import Head

PAGE: Final = 50
"""How many runs are listed at a time."""

JSON: Final = "application/json"
TEXT: Final = "text/plain"

RUN: Final = "toolfleet://runs/{run_id}"
ANSWER: Final = "toolfleet://runs/{run_id}/answer"

_RUN: Final = re.compile(r"toolfleet://runs/(?P<run_id>[^/?#]+)(?P<answer>/answer)?")

TEMPLATES: Final = (
    types.ResourceTemplate(
        uri_template=RUN,
        name="run",
        title="A run",
        description="A run as it stands: its messages, calls, usage and answer.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        uri_template=ANSWER,
        name="answer",
        title="The answer of a run",
        description="What a run came to: its answer, why it has none, or that it has not ended.",
        mime_type=TEXT,
    ),
    ARTIFACT_TEMPLATE,
)


class Resources:
    """Answers `resources/list`, `resources/templates/list` and `resources/read`."""

    def __init__(self, orchestrator: Orchestrator, caller_of: CallerOf, beside: Beside) -> None:
        self._orchestrator = orchestrator
        self._caller_of = caller_of
        self._beside = beside

    def serve_on(self, server: Server[None]) -> None:
        """Answer the methods."""
        server.add_request_handler("resources/list", types.PaginatedRequestParams, self._list)
        server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, self._templates)
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, self._read)

    async def run(self, uri: str, caller: Caller) -> Run | None:
        """Return the run that a URI names, or whose answer it names; None if it is no URI of a run.

        Raises RunNotFound for one that is not there, or not this caller's; StoreUnreachable.
        """
        named = _RUN.fullmatch(uri)
        if named is None:
            return None
        run_id = unquote(named["run_id"])
        run = await self._orchestrator.get(run_id)
        if run.terms.tenant != caller.tenant:
            raise RunNotFound(f"there is no run {run_id}")
        return run

    async def is_beside(self, uri: str) -> bool:
        """Return whether it is one of those that the operator offers beside the tools."""
        return any(each.uri == uri for each in await self._beside.resources())

    async def _list(self, ctx: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        caller, before = self._caller_of(ctx.request), params.cursor or ""
        with protocol_errors():
            try:
                found = await self._orchestrator.run_page(before=before, limit=PAGE, tenant=caller.tenant)
            except BadCursor as error:
                raise MCPError(INVALID_PARAMS, str(error)) from None
        first = () if before else await self._beside.resources()
        return types.ListResourcesResult(
            resources=[*first, *map(_listed, found.heads)],
            next_cursor=found.before or None,
            ttl_ms=0,
            cache_scope="private",
        )

    async def _templates(
        self, _ctx: Context, _params: types.PaginatedRequestParams
    ) -> types.ListResourceTemplatesResult:
        templates = [*TEMPLATES, *await self._beside.templates()]
        return types.ListResourceTemplatesResult(resource_templates=templates, ttl_ms=0, cache_scope="private")

    async def _read(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        caller = self._caller_of(ctx.request)
        with protocol_errors():
            try:
                found = await self._found(params.uri, caller)
            except (RunNotFound, ArtifactNotFound):
                raise not_found(params.uri) from None
        if found is not None:
            return types.ReadResourceResult(contents=[found], ttl_ms=0, cache_scope="private")
        return cast("types.ReadResourceResult", await self._beside.answer(ctx, params))

    async def _found(self, uri: str, caller: Caller) -> types.TextResourceContents | types.BlobResourceContents | None:
        run = await self.run(uri, caller)
        if run is not None:
            return _contents(uri, run)
        return await artifact_contents(self._orchestrator, uri, caller)


def not_found(uri: str) -> MCPError:
    """Make the answer about a resource that is not there, or not the caller's."""
    return MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})


def uri_of(run_id: str) -> str:
    """Return where a run is read."""
    return RUN.format(run_id=quote(run_id, safe=""))


def _listed(head: Head) -> types.Resource:
    return types.Resource(
        uri=uri_of(head.run_id),
        name=head.run_id,
        title=head.title or None,
        description=f"A run of {head.model or 'no model'}, {head.state}: turn {head.turn}, {head.calls} calls.",
        mime_type=JSON,
    )


def _contents(uri: str, run: Run) -> types.TextResourceContents:
    if uri.endswith("/answer"):
        return types.TextResourceContents(uri=uri, mime_type=TEXT, text=_came_to(run))
    return types.TextResourceContents(uri=uri, mime_type=JSON, text=run.model_dump_json())


def _came_to(run: Run) -> str:
    if run.answer is not None:
        return run.answer
    if not run.state.is_terminal:
        return f"The run has no answer yet: it is {run.state}."
    return f"The run has no answer: it is {run.state}, {run.reason or 'for no known reason'}."
