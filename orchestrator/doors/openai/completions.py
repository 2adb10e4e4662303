"""An ended run as a completion of OpenAI's: its content, how it ended, and what its model's provider has told. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from toolfleet.orchestrator.doors.openai.openai_records import tool_calls_of, usage_of
from toolfleet.orchestrator.doors.openai.shown import BETWEEN_TURNS
from toolfleet.orchestrator.models.chat_fields import finish_reason, must_be_json, refusal_told
from toolfleet.orchestrator.run.updates import CallAwaitsApproval
from toolfleet.orchestrator.run.value import Run

OURS: Final = "toolfleet"
"""The member of an answer that says what OpenAI has no word for. Its clients pass over it."""


def is_one_value(output_schema: Mapping[str, Any] | None, model_options: Mapping[str, Any]) -> bool:
    """Return whether a completion's content is one JSON value, with nothing that was said on the way to it."""
    return output_schema is not None or must_be_json(model_options)


def content_of(run: Run) -> str:
    """Return all that was said in the run's turns, as a stream reads; of an answer in JSON that alone."""
    if is_one_value(run.terms.output_schema, run.terms.model_options):
        return run.answer or ""
    said = [reply.content for reply in run.replies if reply.content]
    return BETWEEN_TURNS.join([*said, *last_words(run)])


def last_words(run: Run) -> list[str]:
    """Return what the answer has that its model has not said: results of tools that answer directly."""
    return [run.answer] if run.is_answered_by_tools and run.answer else []


def refusal_of(run: Run) -> str | None:
    """Return what stands in `refusal`."""
    return refusal_told(run.incomplete, run.refusal)


def ending_of(run: Run) -> str:
    """Return why the completion ended."""
    return "tool_calls" if run.handed_over else finish_reason(run.incomplete, run.refusal)


def told_by_provider(run: Run) -> dict[str, Any]:
    """Return what an answer repeats of its request and of what the model's provider has said."""
    told = {
        "metadata": run.terms.model_options.get("metadata"),
        "service_tier": run.service_tier,
        "system_fingerprint": run.system_fingerprint,
        OURS: {"incomplete": run.incomplete.value} if run.incomplete is not None else None,
    }
    return {name: value for name, value in told.items() if value}


def completion(run: Run) -> dict[str, Any]:
    """Return a run that has an answer as a whole completion."""
    message: dict[str, Any] = {"role": "assistant", "content": content_of(run) or None, "refusal": refusal_of(run)}
    if calls := tool_calls_of(run.handed_over):
        message["tool_calls"] = calls
    return {
        "id": f"chatcmpl-{run.run_id}",
        "object": "chat.completion",
        "created": int(run.started_unix_s or time.time()),
        "model": run.model,
        "choices": [{"index": 0, "message": message, "finish_reason": ending_of(run), "logprobs": None}],
        "usage": usage_of(run.usage),
        **told_by_provider(run),
    }


def awaiting(update: CallAwaitsApproval) -> dict[str, Any]:
    """Return our member of a piece of a stream whose run waits for a person."""
    waits = {"run_id": update.run_id, "call_id": update.call_id, "tool": update.tool, "arguments": update.arguments}
    return {OURS: {"awaiting_approval": waits}}
