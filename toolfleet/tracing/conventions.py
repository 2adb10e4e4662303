"""The names of OpenTelemetry's conventions, and which failures count as errors.

From the GenAI conventions' own repository (open-telemetry/semantic-conventions-genai) at the commit below, where they
are still in development, and from the messaging conventions. Names and values only.
"""

from __future__ import annotations

from typing import Final

from toolfleet.calls import Failed, FailureKind, Returned, Submitted

GENAI_COMMIT: Final = "024a4f944a1291fcb627c9c47da69e79868dd15e"
"""What `model/gen-ai/spans.yaml` of that repository says there is what is recorded here."""

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
STREAM: Final = "gen_ai.request.stream"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR_TYPE: Final = "error.type"

MESSAGING: Final = "messaging.system"
MESSAGING_OPERATION: Final = "messaging.operation.name"
MESSAGING_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
SYSTEM: Final = "celery"

RUN: Final = "toolfleet.run_id"
CALL: Final = "toolfleet.call_id"
TURN: Final = "toolfleet.turn"
TENANT: Final = "toolfleet.tenant"
OUTCOME: Final = "toolfleet.outcome"
ATTEMPT: Final = "toolfleet.attempt"
WORKER: Final = "toolfleet.worker"
ORCHESTRATOR: Final = "toolfleet.orchestrator_id"

NO_ERRORS: Final = frozenset({FailureKind.CANCELLED, FailureKind.DENIED, FailureKind.LIMIT, FailureKind.ROLLED_BACK})
"""What somebody has decided, and what a limit has put off, went as it was meant to go."""


def outcome_of(result: Returned | Failed | Submitted) -> tuple[str, str]:
    """Return what a call has come to, in one word, and its `error.type`; "" for what is no error."""
    if not isinstance(result, Failed):
        return result.type, ""
    return result.kind.value, "" if result.kind in NO_ERRORS else result.kind.value
