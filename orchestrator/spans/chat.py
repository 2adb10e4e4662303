"""The span of one reply: open while the model writes it, and the current one for whatever asks the model."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from toolfleet.masks import mask_arguments, mask_by_name
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.models.protocol import ReplyComplete
from toolfleet.orchestrator.run.fault import fault_in
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.spans.content import messages_as_json
from toolfleet.tool import ToolSpec
from toolfleet.tracing.conventions import (
    AGENT,
    CONVERSATION,
    FINISH_REASONS,
    INPUT_MESSAGES,
    INPUT_TOKENS,
    OPERATION,
    OUTPUT_MESSAGES,
    OUTPUT_TOKENS,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    RUN,
    STREAM,
    TURN,
)

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing


class Chat:
    """Used as a statement around the hearing of a reply."""

    def __init__(
        self,
        tracing: Tracing,
        run: Run,
        provider: str,
        model: str,
        *,
        offered: Mapping[str, ToolSpec],
        conversation: str,
    ) -> None:
        self._tracing = tracing
        self._run = run
        self._model = model
        self._offered = offered
        self._span: Any = None
        self._token: Any = None
        self._attributes: dict[str, str | int | bool] = {
            OPERATION: "chat",
            PROVIDER: provider,
            REQUEST_MODEL: model,
            CONVERSATION: conversation,
            STREAM: True,
            RUN: run.run_id,
            TURN: run.turn + 1,
        }

    def __enter__(self) -> Self:
        trace = self._run.trace
        if trace is None:
            return self
        if not trace.is_sampled:
            self._token = self._tracing.attach(trace.traceparent, trace.tracestate)
            return self
        if trace.agent:
            self._attributes[AGENT] = trace.agent
        if self._tracing.shows_content:
            self._attributes[INPUT_MESSAGES] = messages_as_json(self._run.messages)
        self._span = self._tracing.open(
            f"chat {self._model}",
            trace.traceparent,
            self._attributes,
            tracestate=trace.tracestate,
            kind="client",
        )
        # Without what the caller has carried along: it is for tools, and no model's provider is to have it.
        self._token = self._tracing.attach_span(self._span)
        return self

    def heard(self, reply: ReplyComplete) -> None:
        """Note what the reply says of itself."""
        if self._span is None:
            return
        self._span.set_attributes(
            {
                RESPONSE_MODEL: reply.model,
                FINISH_REASONS: [reply.finish_reason],
                INPUT_TOKENS: reply.usage.input_tokens,
                OUTPUT_TOKENS: reply.usage.output_tokens,
            }
        )
        if self._tracing.shows_content:
            said = messages_as_json([self._masked(reply.message)], reply.finish_reason)
            self._span.set_attribute(OUTPUT_MESSAGES, said)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._tracing.detach(self._token)
        if self._span is not None:
            # Whoever was cancelled did as they were told.
            self._tracing.end(self._span, _error_type(error) if isinstance(error, Exception) else "")

    def _masked(self, message: AssistantMessage) -> AssistantMessage:
        schemas = [spec.input_schema for spec in self._offered.values()]
        calls = tuple(
            call.model_copy(
                update={
                    "arguments": mask_arguments(call.arguments, self._offered[call.name].input_schema)
                    if call.name in self._offered
                    else mask_by_name(call.arguments, schemas)
                }
            )
            for call in message.tool_calls
        )
        return message.model_copy(update={"tool_calls": calls})


def _error_type(error: Exception) -> str:
    fault = fault_in(error)
    return fault.kind.value if fault else type(error).__name__
