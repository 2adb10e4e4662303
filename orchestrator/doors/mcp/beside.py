"""What the operator offers beside the fleet's tools: prompts and resources of an `MCPServer` of the official SDK.

It is declared with the SDK's own decorators and answered by the SDK; only its tools are not served, for those belong on
workers. Knows nothing of the fleet.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import PydanticUserError, TypeAdapter

from toolfleet.errors import ToolModuleError
from toolfleet.logs import FactLog
from toolfleet.toolbox import resolve

log = FactLog("toolfleet.mcp")

Context = ServerRequestContext[Any, Any]


class Beside:
    """Answers about the prompts and resources of a server that runs nowhere by itself; an empty one without it."""

    def __init__(self, declared: MCPServer[Any] | None) -> None:
        self.is_declared = declared is not None
        self._server = declared or MCPServer("nothing")

    @classmethod
    def named(cls, name: str) -> Beside:
        """Find it by `module:name`; "" for none. Raises ToolModuleError."""
        if not name:
            return cls(None)
        what = "what is offered beside the tools (TOOLFLEET_MCP_BESIDE)"
        found = resolve(name, what)
        if not isinstance(found, MCPServer):
            raise ToolModuleError(
                f"cannot load {what} from {name!r}: it is a {type(found).__name__}, and has to be an "
                "mcp.server.MCPServer; name it as module:name"
            )
        return cls(found)

    async def resources(self) -> Sequence[types.Resource]:
        """List its resources."""
        return await self._server.list_resources()

    async def templates(self) -> Sequence[types.ResourceTemplate]:
        """List its resource templates."""
        return await self._server.list_resource_templates()

    async def prompts(self) -> Sequence[types.Prompt]:
        """List its prompts."""
        return await self._server.list_prompts()

    async def has_prompt(self, name: str) -> bool:
        """Return whether it has a prompt of this name."""
        return any(prompt.name == name for prompt in await self.prompts())

    async def answer(self, ctx: Context, params: Any) -> Any:
        """Answer a request as the server itself would: `resources/read`, `prompts/get`, `completion/complete`.

        Raises MCPError.
        """
        # The SDK has public methods for most of these, but they leave the requests' own words (who asks, what was
        # answered to a question) to be put together again; its handlers take them as they are.
        entry = self._server._lowlevel_server.get_request_handler(ctx.method)
        if entry is None:
            raise MCPError(INVALID_PARAMS, "nothing answers to this")
        try:
            return await entry.handler(ctx, params)
        except ValueError as error:  # how the SDK refuses arguments that a prompt does not take
            raise MCPError(INVALID_PARAMS, str(error)) from error
        except SystemExit as error:  # of a parser of arguments, for example: it must not end the server
            log.warning("mcp_beside_exits", method=ctx.method)
            raise MCPError(INTERNAL_ERROR, "what answers to this has ended itself") from error

    @property
    def completes(self) -> bool:
        """Whether it has declared completions of its own."""
        return self._server._lowlevel_server.get_request_handler("completion/complete") is not None

    def choices(self, prompt: str, argument: str) -> Sequence[str]:
        """Return the values that an argument of a prompt may have, if its type says them; else none."""
        found = self._server._prompt_manager.get_prompt(prompt)
        if found is None:
            return ()
        parameter = inspect.signature(found.fn, eval_str=True).parameters.get(argument)
        if parameter is None or parameter.annotation is inspect.Parameter.empty:
            return ()
        try:
            schema = TypeAdapter(parameter.annotation).json_schema()
        except PydanticUserError:
            return ()
        return [str(value) for value in schema.get("enum", ())]
