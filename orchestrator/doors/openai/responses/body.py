"""A run as OpenAI's `Response`: how it stands, what it was asked with, what it has said. Pure.

Every field that a request may have comes back as it was given, or with the value that holds where it was left out.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from toolfleet.messages import Usage
from toolfleet.orchestrator.doors.openai.completions import OURS
from toolfleet.orchestrator.doors.openai.endings import problem_of_run
from toolfleet.orchestrator.doors.openai.responses.output import lack_of, output_of
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

PREFIX: Final = "resp_"

STATUSES: Final = {State.DONE: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}
"""What a response's status is called; a run that has not ended is in progress."""

CODES: Final = {
    HTTPStatus.BAD_REQUEST: "invalid_prompt",
    HTTPStatus.NOT_FOUND: "invalid_prompt",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
}
"""What OpenAI calls errors with these statuses in a response. All others are its server's."""

WHERE_LEFT_OUT: Final[dict[str, Any]] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": None,
    "store": True,
    "temperature": None,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""What a response says of a field that its request did not have."""


def response_of(run: Run, *, status: str | None = None) -> dict[str, Any]:
    """Return the response that a run is. `status` is what it is called instead, before it has begun."""
    asked, is_over, lacks = run.asked_as, run.state.is_terminal, lack_of(run)
    ours = _ours(run)
    return {
        **{name: asked.get(name, default) for name, default in WHERE_LEFT_OUT.items()},
        "id": PREFIX + run.run_id,
        "object": "response",
        "created_at": int(run.started_unix_s),
        "status": status or ("incomplete" if lacks else STATUSES.get(run.state, "in_progress")),
        "error": _error_of(run) if is_over and run.state is not State.DONE else None,
        "incomplete_details": {"reason": lacks} if lacks else None,
        "model": run.model,
        "output": output_of(run),
        "reasoning": {"effort": None, "summary": None, **_members(asked.get("reasoning"))},
        "service_tier": run.service_tier or asked.get("service_tier"),
        "text": {"format": {"type": "text"}, **_members(asked.get("text"))},
        "tools": asked.get("tools", _tools_of(run)),
        "usage": usage_of(run.usage) if is_over else None,
        **({OURS: ours} if ours else {}),
    }


def _error_of(run: Run) -> dict[str, Any]:
    """Return why a run has no answer, in the words that a completion is answered with."""
    problem = problem_of_run(run)
    return {"code": CODES.get(problem.status, "server_error"), "message": problem.detail}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return the tokens as Responses counts them."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, **usage.input_details},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0, **usage.output_details},
        "total_tokens": usage.total_tokens,
    }


def _ours(run: Run) -> dict[str, Any]:
    """Return what OpenAI has no word for: what the answer lacks, and which calls wait for a person."""
    waiting = [
        {"call_id": call.call_id, "tool": call.tool, "arguments": call.arguments} for call in run.awaiting_approval
    ]
    told = {"incomplete": run.incomplete.value if run.incomplete else None, "awaiting_approval": waiting}
    return {name: value for name, value in told.items() if value}


def _members(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _tools_of(run: Run) -> list[dict[str, Any]]:
    """Return the client's tools of a run that was begun at another door."""
    return [
        {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.input_schema,
            "strict": bool(spec.strict),
        }
        for spec in run.terms.client_tools
    ]
