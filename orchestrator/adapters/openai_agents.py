"""The OpenAI Agents SDK: the fleet's tools as FunctionTools. Needs the extra `toolfleet[openai-agents]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents import FunctionTool
from agents.tool_context import ToolContext

from toolfleet.misspelt import exact
from toolfleet.orchestrator.adapters.asking import FrameworkCalls
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.tool import ToolSpec


@exact()
async def fleet_tools(
    orchestrator: Orchestrator,
    names: Sequence[str] | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> list[FunctionTool]:
    """The named tools, or all that live workers serve now, for `Agent(tools=...)`.

    The calls of one reply run at the same time. Those of tools that require approval interrupt the run, as the SDK has
    it. A failing call's text goes to the model. Raises UnknownTool, StoreUnreachable.
    """
    asking = FrameworkCalls(orchestrator, context or {}, timeout_s)
    return [_function_tool(spec, asking) for spec in (await orchestrator.catalog.choose(names)).values()]


def _function_tool(spec: ToolSpec, asking: FrameworkCalls) -> FunctionTool:
    async def perform(_context: ToolContext[Any], arguments: str) -> str:
        # The SDK comes here only with calls that were approved, or need not be.
        answer, _ = await asking.answer(spec.name, arguments, is_approved=True)
        return answer.content

    return FunctionTool(
        name=legal_name(spec.name),
        description=spec.description,
        params_json_schema=spec.input_schema,
        on_invoke_tool=perform,
        # The strict subset is the provider's; a worker checks the arguments against the whole schema.
        strict_json_schema=False,
        needs_approval=spec.requires_approval,
    )
