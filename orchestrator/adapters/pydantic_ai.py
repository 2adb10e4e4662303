"""pydantic-ai: the fleet as a toolset. Needs the extra `toolfleet[pydantic-ai]`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_ai import ApprovalRequired, BinaryContent, ModelRetry, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolfleet.calls import Effect, FailureKind, MediaPart
from toolfleet.media import bytes_of, essence_of
from toolfleet.misspelt import exact
from toolfleet.orchestrator.adapters.asking import FrameworkCalls, shown_as
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.models.names import NameMap, legal_name
from toolfleet.tool import ToolSpec

_ANY_OBJECT: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The worker that knows the tool checks the arguments."""


@exact()
class FleetToolset(AbstractToolset[Any]):
    """The named tools, or all that live workers serve at each step and `read_result`.

    `Agent(toolsets=[FleetToolset(orchestrator)])` has them.
    Wrong arguments are tried again, up to `max_retries` in a row; any other failure is told to the model as one. Calls
    of tools that require approval are deferred until they are approved, as pydantic-ai has it.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        names: Sequence[str] | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        max_retries: int = 2,
        id: str = "toolfleet",  # noqa: A002  # pydantic-ai's name
    ) -> None:
        self._asking = FrameworkCalls(orchestrator, context or {}, timeout_s)
        self._names = names
        self._max_retries = max_retries
        self._id = id

    @property
    def id(self) -> str:
        """What distinguishes it from the agent's other toolsets."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """What can be called now. Raises UnknownTool, StoreUnreachable."""
        del ctx
        specs = await self._asking.specs(self._names)
        return {legal_name(spec.name): self._tool(spec) for spec in specs.values()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str | ToolReturn[Any]:
        """The tool's content, with its media. Raises ModelRetry, ToolFailed and ApprovalRequired, for pydantic-ai."""
        if (tool.tool_def.metadata or {})["requires_approval"] and not ctx.tool_call_approved:
            raise ApprovalRequired
        known = NameMap(await self._asking.orchestrator.catalog.offered())
        answer, kind = await self._asking.answer(known.to_catalog(name), json.dumps(tool_args), is_approved=True)
        if kind is FailureKind.BAD_ARGUMENTS:
            raise ModelRetry(answer.content)
        if answer.is_error:
            raise ToolFailed(answer.content)
        shown = [_binary(part) for part in answer.media if shown_as(part)]
        metadata = [part.model_dump(mode="json") for part in answer.media if not shown_as(part)]
        if not answer.media:
            return answer.content
        return ToolReturn([answer.content, *shown] if shown else answer.content, metadata=metadata or None)

    def _tool(self, spec: ToolSpec) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=legal_name(spec.name),
            description=spec.description,
            parameters_json_schema=spec.input_schema,
            metadata={
                "requires_approval": spec.requires_approval,
                "read_only": spec.effect is Effect.READ_ONLY,
            },
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=self._max_retries, args_validator=_ANY_OBJECT)


def _binary(part: MediaPart) -> BinaryContent:
    return BinaryContent(bytes_of(part.data), media_type=essence_of(part.media_type))
