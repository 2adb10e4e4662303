"""The OpenAI Agents SDK: the fleet's tools as FunctionTools. Needs the extra `toolfleet[openai-agents]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from toolfleet.calls import MediaPart
from toolfleet.media import essence_of
from toolfleet.misspelt import exact
from toolfleet.orchestrator.adapters.asking import FrameworkCalls, shown_as
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.tool import ToolSpec

Output = ToolOutputText | ToolOutputImage | ToolOutputFileContent


@exact()
async def fleet_tools(
    orchestrator: Orchestrator,
    names: Sequence[str] | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> list[FunctionTool]:
    """The named tools, or all that live workers serve now and `read_result`, for `Agent(tools=...)`.

    The calls of one reply run at the same time. Those of tools that require approval interrupt the run, as the SDK has
    it. A failing call's text goes to the model. Raises UnknownTool, StoreUnreachable.
    """
    asking = FrameworkCalls(orchestrator, context or {}, timeout_s)
    return [_function_tool(spec, asking) for spec in (await asking.specs(names)).values()]


def _function_tool(spec: ToolSpec, asking: FrameworkCalls) -> FunctionTool:
    async def perform(_context: ToolContext[Any], arguments: str) -> str | list[Output]:
        # The SDK comes here only with calls that were approved, or need not be.
        answer, _ = await asking.answer(spec.name, arguments, is_approved=True)
        outputs = [output for part in answer.media if (output := _output(part)) is not None]
        return [ToolOutputText(text=answer.content), *outputs] if outputs else answer.content

    return FunctionTool(
        name=legal_name(spec.name),
        description=spec.description,
        params_json_schema=spec.input_schema,
        on_invoke_tool=perform,
        # The strict subset is the provider's; a worker checks the arguments against the whole schema.
        strict_json_schema=False,
        needs_approval=spec.requires_approval,
    )


def _output(part: MediaPart) -> Output | None:
    """What a model is shown of a part; None where the text alone says what it is, as of sounds."""
    url = f"data:{essence_of(part.media_type)};base64,{part.data}"
    match shown_as(part):
        case "image":
            return ToolOutputImage(image_url=url)
        case "file":
            return ToolOutputFileContent(file_data=url, filename=part.name or "document.pdf")
        case _:
            return None
