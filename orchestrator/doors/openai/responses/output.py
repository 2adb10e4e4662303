"""What a run has said, as the items of a response. Pure: the same run always gives the same items, with the same ids.

Each turn's text is a message of its own, behind the thoughts that its model let see. The fleet's calls are made here
and are no items; those of the client's own tools are, once they are handed over. Of an answer in JSON only that itself
is an item: what did not fit its schema is not to be read.
"""

from __future__ import annotations

from typing import Any, Final

from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.doors.openai.completions import is_one_value
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id
from toolfleet.orchestrator.models.chat_fields import refusal_told
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

Item = dict[str, Any]

LACKS: Final = {Incomplete.LENGTH: "max_output_tokens", Incomplete.CONTENT_FILTER: "content_filter"}
"""What OpenAI calls what an answer may lack. A refusal in words is whole: its words are the answer."""

ANSWER: Final = "answer"
"""Stands for the turn in the id of an answer that is no turn's own text."""


def output_of(run: Run) -> list[Item]:
    """Return the items of a run so far."""
    said = [item for turn, reply in enumerate(run.replies, start=1) for item in items_of_reply(run, turn, reply)]
    return [*said, *items_at_end(run)]


def lack_of(run: Run) -> str | None:
    """Return what the answer of a run lacks, in OpenAI's words; None for a whole one."""
    if run.incomplete is Incomplete.REFUSAL and not run.refusal:
        return LACKS[Incomplete.CONTENT_FILTER]
    return LACKS.get(run.incomplete) if run.incomplete else None


def says_one_value(run: Run) -> bool:
    """Return whether the answer alone is told, and nothing that was said on the way to it."""
    return is_one_value(run.terms.output_schema, run.terms.model_options)


def items_of_reply(run: Run, turn: int, reply: AssistantMessage) -> list[Item]:
    """Return what one reply says, once it is whole: what its model let see of its thoughts, and a message."""
    if says_one_value(run):
        return []
    thoughts = [reasoning_item(reasoning_id(run.run_id, turn), reply.thoughts)] if reply.thoughts else []
    is_last = run.state is State.DONE and turn == run.turn
    refusal = (refusal_told(run.incomplete, run.refusal) if is_last else reply.refusal) or ""
    status = "incomplete" if is_last and lack_of(run) else "completed"
    phase = "commentary" if reply.tool_calls else "final_answer"
    return [
        *thoughts,
        *_message(message_id(run.run_id, turn), reply.content, refusal, status=status, phase=phase),
    ]


def items_at_end(run: Run) -> list[Item]:
    """Return what only the end of a run brings: an answer that no turn has said by itself, and the client's calls."""
    if run.state is not State.DONE:
        return []
    found: list[Item] = []
    if run.is_answered_by_tools or says_one_value(run):
        refusal = refusal_told(run.incomplete, run.refusal) or ""
        status = "incomplete" if lack_of(run) else "completed"
        item_id = message_id(run.run_id, ANSWER)
        found = _message(item_id, run.answer or "", refusal, status=status, phase="final_answer")
    return [*found, *map(call_item, run.handed_over)]


def _message(item_id: str, text: str, refusal: str, *, status: str, phase: str) -> list[Item]:
    parts = [text_part(text)] if text else []
    if refusal:
        parts.append(refusal_part(refusal))
    return [{**opened_message(item_id), "status": status, "phase": phase, "content": parts}] if parts else []


def message_id(run_id: str, turn: int | str) -> str:
    """Return the id of what was said in a turn."""
    return f"msg_{run_id}_{turn}"


def reasoning_id(run_id: str, turn: int) -> str:
    """Return the id of what was thought in a turn."""
    return f"rs_{run_id}_{turn}"


def reasoning_item(item_id: str, thoughts: str) -> Item:
    """Return what a model let see of its thoughts. Nobody has to send it back."""
    return {**opened_reasoning(item_id), "status": "completed", "content": [thoughts_part(thoughts)]}


def opened_reasoning(item_id: str) -> Item:
    """Return thoughts of which nothing has come yet."""
    return {"id": item_id, "type": "reasoning", "summary": [], "status": "in_progress", "content": []}


def thoughts_part(text: str) -> dict[str, Any]:
    """Return thoughts as a part of their item."""
    return {"type": "reasoning_text", "text": text}


def opened_message(item_id: str) -> Item:
    """Return a message of which nothing has come yet."""
    return {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def text_part(text: str) -> dict[str, Any]:
    """Return text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(words: str) -> dict[str, Any]:
    """Return what the model said in place of an answer as a part of a message."""
    return {"type": "refusal", "refusal": words}


def call_item(call: CallRecord) -> Item:
    """Return a call for the client to perform."""
    call_id = handed_over_id(call)
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": call_id,
        "name": call.tool,
        "arguments": call.arguments,
        "status": "completed",
    }


def run_of_item(item_id: str) -> str | None:
    """Return the run whose output an item with this id may be; None for any other id."""
    kind, _, rest = item_id.partition("_")
    if kind in {"msg", "rs"}:
        return rest.rpartition("_")[0] or None
    if kind == "fc" and rest.startswith("call_"):
        return "_".join(rest.removeprefix("call_").split("_")[:-2]) or None
    return None
