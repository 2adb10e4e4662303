"""`prompts/list` and `prompts/get`: what is declared beside the tools. The fleet has none of its own."""

from __future__ import annotations

from typing import cast

import mcp_types as types
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolfleet.orchestrator.doors.mcp.beside import Beside, Context


class Prompts:
    """Answers about prompts."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    def serve_on(self, server: Server[None]) -> None:
        """Answer the methods, where something is declared; else clients are told that there are no prompts."""
        if self._beside.is_declared:
            server.add_request_handler("prompts/list", types.PaginatedRequestParams, self._list)
            server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._get)

    async def _list(self, _ctx: Context, _params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=list(await self._beside.prompts()), ttl_ms=0, cache_scope="private")

    async def _get(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if not await self._beside.has_prompt(params.name):
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return cast("types.GetPromptResult", await self._beside.answer(ctx, params))
