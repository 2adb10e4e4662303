"""What the adapters share: calls that their framework stops waiting for are cancelled on the workers too.

Knows no framework. Each call goes through `Orchestrator.execute`, so no call is lost and each has one answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolfleet.background import without_argument
from toolfleet.calls import Failed, FailureKind, MediaPart
from toolfleet.errors import ToolfleetError
from toolfleet.media import essence_of
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.models.sight import is_image
from toolfleet.orchestrator.run.updates import CallEnded, CallStarted, RunUpdate
from toolfleet.read_result import READ_RESULT
from toolfleet.tool import ToolSpec

PDF: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class FrameworkCalls:
    """How an adapter's calls are made: what the tools are told beside their arguments, and how long they may take."""

    orchestrator: Orchestrator
    context: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    async def specs(self, names: Sequence[str] | None) -> dict[str, ToolSpec]:
        """What an agent is offered: the named tools, or all that are served now, and `read_result` to read on with.

        Raises UnknownTool, StoreUnreachable.
        """
        served = None if names is None else [name for name in names if name != READ_RESULT.name]
        specs = await self.orchestrator.catalog.choose(served)
        # A framework's model waits for each result: it has no tool that fetches one later.
        specs = {name: spec if spec.background is None else _waited_for(spec) for name, spec in specs.items()}
        if names is None or READ_RESULT.name in names:
            return {**specs, READ_RESULT.name: READ_RESULT}
        return specs

    async def answers(self, message: AssistantMessage, *, approved: Collection[str] = ()) -> list[ToolMessage]:
        """One answer for each call, in order, with its media at hand. See Orchestrator.execute for what it raises."""
        answers, _ = await self._made(message, approved)
        return answers

    async def answer(
        self, tool: str, arguments: str, *, is_approved: bool = False
    ) -> tuple[ToolMessage, FailureKind | None]:
        """The answer to one call, and why it failed, if a worker had it and it did."""
        asked = RequestedCall(id="call", name=tool, arguments=arguments)
        approved = {asked.id} if is_approved else ()
        [answer], kinds = await self._made(AssistantMessage(tool_calls=(asked,)), approved)
        return answer, next(iter(kinds), None)

    async def _made(
        self, message: AssistantMessage, approved: Collection[str]
    ) -> tuple[list[ToolMessage], list[FailureKind]]:
        under_way: set[str] = set()
        kinds: list[FailureKind] = []

        def hear(event: RunUpdate) -> None:
            if isinstance(event, CallStarted):
                under_way.add(event.call_id)
            elif isinstance(event, CallEnded):
                under_way.discard(event.call_id)
                if isinstance(event.result, Failed):
                    kinds.append(event.result.kind)

        try:
            answers = await self.orchestrator.execute(
                message, context=self.context, timeout_s=self.timeout_s, approved=approved, on_event=hear
            )
        except asyncio.CancelledError:
            await asyncio.shield(self._cancelled(under_way))
            raise
        return [await self.orchestrator.with_media(answer) for answer in answers], kinds

    async def _cancelled(self, call_ids: Collection[str]) -> None:
        await asyncio.gather(*(self._cancel(call_id) for call_id in call_ids))

    async def _cancel(self, call_id: str) -> None:
        with suppress(ToolfleetError):  # it has ended meanwhile, or its deadline ends it
            await self.orchestrator.cancel_call(call_id)


def _waited_for(spec: ToolSpec) -> ToolSpec:
    return spec.model_copy(update={"input_schema": without_argument(spec.input_schema), "background": None})


def shown_as(part: MediaPart) -> Literal["image", "file", "audio"] | None:
    """Return as what a model may be shown a part that is at hand; None: its text says what it is.

    What one provider takes and another refuses would end a conversation that only quotes it.
    """
    if not part.data:
        return None
    if is_image(part):
        return "image"
    essence = essence_of(part.media_type)
    if essence.startswith("audio/"):
        return "audio"
    return "file" if essence == PDF else None
