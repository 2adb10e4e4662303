"""Answers to calls that no worker is asked: refused, built-in, a search, or of an unknown tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from toolfleet import read_result
from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.artifacts import Artifacts
from toolfleet.calls import Failed, Returned, Submitted, ToolResult
from toolfleet.orchestrator.calls.interception import intercept_late
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.refusals import unknown_tool, version_gone
from toolfleet.orchestrator.run.transcript import in_own_words
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.tools.builtin import BUILT_IN, BuiltIn

Answer = Returned | Failed | str

OnUnknownTool = Literal["tell", "raise"] | Callable[[CallRecord], Awaitable[Answer] | Answer]
"""What becomes of a call of a tool that nobody offered: the model is told, the run fails, or your own answer.

A text is what the model is told instead of our own words: nothing has run.
"""


@dataclass(frozen=True, slots=True)
class CallAnswers:
    """Answers calls in this process."""

    built_in: BuiltIn
    artifacts: Artifacts
    limits: ArgumentLimits
    on_unknown_tool: OnUnknownTool = "tell"

    async def answer(
        self, call: CallRecord, scope: CallScope, fetched: dict[str, ToolResult]
    ) -> Returned | Failed | Submitted:
        """Answer one call; late results that it asks for are put into `fetched`. Raises UnknownTool if so wished."""
        if call.refusal is not None:
            return call.refusal
        if call.tool not in scope.offered:
            return await self._answer_unknown(call, scope)
        if call.tool == read_result.READ_RESULT.name:
            return await read_result.answer(self.artifacts, call.arguments, scope.asker)
        if call.tool in BUILT_IN:
            late = partial(self._late, scope)
            return await self.built_in.answer(
                call.tool,
                call.arguments,
                scope.run_id,
                fetched=fetched.__setitem__,
                late=late,
                tasks=scope.tasks,
                told=partial(_in_own_words, scope),
            )
        if scope.search is not None:
            return await scope.search(call.arguments)
        return await self._answer_unknown(call, scope)

    async def _late(self, scope: CallScope, status: Status) -> Status:
        return await intercept_late(status, scope.tasks.get(status.task_id), scope, self.limits)

    async def _answer_unknown(self, call: CallRecord, scope: CallScope) -> Returned | Failed:
        gone = scope.gone.get(call.tool)
        failure = version_gone(gone) if gone else unknown_tool(call.tool, scope.offered)
        if self.on_unknown_tool == "tell":
            return failure
        if self.on_unknown_tool == "raise":
            raise UnknownTool(failure.message)
        said = self.on_unknown_tool(call)
        answer = await said if isinstance(said, Awaitable) else said
        return failure.model_copy(update={"message": answer}) if isinstance(answer, str) else answer


def _in_own_words(scope: CallScope, status: Status) -> Status:
    """How a task stands, as the model of its run reads it."""
    words = None if scope.run is None else scope.run.terms.words
    call = scope.tasks.get(status.task_id)
    if words is None or call is None or status.result is None:
        return status
    return status.ended_with(in_own_words(words, call, status.result))
