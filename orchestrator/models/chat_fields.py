"""Fields of Chat Completions, wherever such requests come in: what the model is asked with, why it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolfleet.orchestrator.run.incomplete import Incomplete

PASSED_ON: Final = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "response_format",
    "tool_choice",
)
"""What goes to the model as it came."""


def passed_on(request: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a request that go on to the model."""
    return {name: request[name] for name in PASSED_ON if request.get(name) is not None}


def answer_schema(model_options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema that `response_format` asks the answer to satisfy, None if it asks for none."""
    match model_options.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case _:
            return None


def finish_reason(incomplete: Incomplete | None) -> str:
    """Why an answer ended. An empty one has simply stopped: Chat Completions has no word for it."""
    has_a_word = incomplete in (Incomplete.LENGTH, Incomplete.CONTENT_FILTER)
    return incomplete.value if incomplete is not None and has_a_word else "stop"
