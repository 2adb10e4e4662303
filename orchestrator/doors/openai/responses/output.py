"""What a run has said, as the items of a response. Pure: the same run always gives the same items, with the same ids.

Each turn's text is a message of its own. The fleet's calls are made here and are no items; those of the client's own
tools are, once they are handed over. With a schema only the answer itself is an item: what did not fit is not to be
read.
"""

from __future__ import annotations

from typing import Any, Final

from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

Item = dict[str, Any]

LACKS: Final = {Incomplete.LENGTH: "max_output_tokens", Incomplete.CONTENT_FILTER: "content_filter"}
"""What OpenAI calls what an answer may lack."""

ANSWER: Final = "answer"
"""Stands for the turn in the id of an answer that is no turn's own text."""


def output_of(run: Run) -> list[Item]:
    """Return the items of a run so far."""
    said = [item for turn, reply in enumerate(run.replies, start=1) for item in items_of_reply(run, turn, reply)]
    return [*said, *items_at_end(run)]


def items_of_reply(run: Run, turn: int, reply: AssistantMessage) -> list[Item]:
    """Return what one reply says, once it is whole: a message, or nothing."""
    if not reply.content or run.terms.output_schema is not None:
        return []
    is_last = run.state is State.DONE and turn == run.turn
    status = "incomplete" if is_last and run.incomplete in LACKS else "completed"
    phase = "commentary" if reply.tool_calls else "final_answer"
    return [message_item(message_id(run.run_id, turn), reply.content, status, phase=phase)]


def items_at_end(run: Run) -> list[Item]:
    """Return what only the end of a run brings: an answer that no turn has said by itself, and the client's calls."""
    if run.state is not State.DONE:
        return []
    is_checked = run.terms.output_schema is not None
    found = []
    if run.answer and (is_checked or _is_of_tools(run)):
        status = "incomplete" if run.incomplete in LACKS else "completed"
        found.append(message_item(message_id(run.run_id, ANSWER), run.answer, status, phase="final_answer"))
    return [*found, *map(call_item, run.handed_over)]


def _is_of_tools(run: Run) -> bool:
    """Whether the answer is what tools returned, and not what the model said."""
    return not run.handed_over and not isinstance(run.messages[-1], AssistantMessage)


def message_id(run_id: str, turn: int | str) -> str:
    """Return the id of what was said in a turn."""
    return f"msg_{run_id}_{turn}"


def message_item(item_id: str, text: str, status: str, *, phase: str) -> Item:
    """Return a whole message."""
    return {**opened_message(item_id), "status": status, "phase": phase, "content": [text_part(text)]}


def opened_message(item_id: str) -> Item:
    """Return a message of which nothing has come yet."""
    return {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def text_part(text: str) -> dict[str, Any]:
    """Return text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


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
    if kind == "msg":
        return rest.rpartition("_")[0] or None
    if kind == "fc" and rest.startswith("call_"):
        return "_".join(rest.removeprefix("call_").split("_")[:-2]) or None
    return None
