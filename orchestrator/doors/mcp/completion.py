"""`completion/complete`: the ids of runs, and what the arguments of prompts may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.beside import Beside, Context
from toolfleet.orchestrator.doors.mcp.callers import Caller, CallerOf
from toolfleet.orchestrator.doors.mcp.resources import TEMPLATES
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors

MOST: Final = 100
"""How many values the protocol lets an answer have."""

RUNS_LOOKED_AT: Final = 1000
"""Among so many of the newest runs an id is looked for."""


class Completions:
    """Answers `completion/complete`."""

    def __init__(self, orchestrator: Orchestrator, caller_of: CallerOf, beside: Beside) -> None:
        self._orchestrator = orchestrator
        self._caller_of = caller_of
        self._beside = beside

    def serve_on(self, server: Server[None]) -> None:
        """Answer the method."""
        server.add_request_handler("completion/complete", types.CompleteRequestParams, self._complete)

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        ref, argument = params.ref, params.argument
        if isinstance(ref, types.ResourceTemplateReference) and ref.uri in {each.uri_template for each in TEMPLATES}:
            caller = self._caller_of(ctx.request)
            ids = await self._run_ids(caller) if argument.name == "run_id" else ()
            return _matching(ids, argument.value)
        await self._must_be_known(ref)
        if self._beside.completes:
            return cast("types.CompleteResult", await self._beside.answer(ctx, params))
        choices = self._beside.choices(ref.name, argument.name) if isinstance(ref, types.PromptReference) else ()
        return _matching(choices, argument.value)

    async def _run_ids(self, caller: Caller) -> Iterable[str]:
        with protocol_errors():
            heads = await self._orchestrator.runs(limit=RUNS_LOOKED_AT, tenant=caller.tenant)
        return [head.run_id for head in heads]

    async def _must_be_known(self, ref: types.ResourceTemplateReference | types.PromptReference) -> None:
        if isinstance(ref, types.PromptReference):
            known, what = await self._beside.has_prompt(ref.name), f"prompt {ref.name!r}"
        else:
            known = any(each.uri_template == ref.uri for each in await self._beside.templates())
            what = f"resource template {ref.uri!r}"
        if not known:
            raise MCPError(INVALID_PARAMS, f"there is no {what}")


def _matching(values: Iterable[str], begun: str) -> types.CompleteResult:
    """Keep the values that begin as the client's user has begun, whatever the case of their letters."""
    found = [value for value in values if value.casefold().startswith(begun.casefold())]
    completion = types.Completion(values=found[:MOST], total=len(found), has_more=len(found) > MOST)
    return types.CompleteResult(completion=completion)
