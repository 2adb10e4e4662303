"""The items of a request: what they may be, what they say as messages, how they are listed again. Pure.

Items of a model's thoughts are taken and left aside: what a provider wants back of them is kept with the run that they
came from (`hidden_turns.py`), and of no use to any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.openai.openai_records import Lenient, parts_of
from toolfleet.orchestrator.doors.openai.responses.output import Item
from toolfleet.orchestrator.models.chat_content import IMAGES

TAKEN: Final = frozenset({"message", "function_call", "function_call_output", "reasoning", "item_reference"})


class InputItem(Lenient):
    """One item of the conversation."""

    type: str | None = None
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[dict[str, Any]] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[dict[str, Any]] | None = None

    @property
    def kind(self) -> str:
        """Which kind of item it is: a message may leave that out, and so may a reference, which is but an id."""
        return self.type or ("message" if self.role or not self.id else "item_reference")


Items = list[InputItem]


def must_be_taken(items: Sequence[InputItem]) -> None:
    """Raise Problem for a kind of item that nothing can be made of here."""
    for position, item in enumerate(items):
        if item.kind not in TAKEN:
            kinds = ", ".join(sorted(TAKEN))
            raise in_input(f"input[{position}] is a {item.kind}, of which nothing can be made here: send {kinds}")
        if item.kind == "message" and item.role is None:
            raise in_input(f"input[{position}] is a message without a role")


def must_match(items: Sequence[InputItem], open_calls: Iterable[str]) -> None:
    """Raise Problem unless each call has its output and each output its call, in this input or left open before it."""
    asked = [*open_calls, *(item.call_id for item in items if item.kind == "function_call")]
    answered = [item.call_id for item in items if item.kind == "function_call_output"]
    for call_id in answered:
        if call_id not in asked:
            raise in_input(f"No tool call found for function call output with call_id {call_id}.")
    for call_id in asked:
        if call_id not in answered:
            raise in_input(f"No tool output found for function call {call_id}.")


def messages_of(items: Sequence[InputItem]) -> list[Message]:
    """Return the items as messages: neighbouring calls belong to one reply, and to the text right before them."""
    found: list[Message] = []
    names = {item.call_id: item.name for item in items if item.kind == "function_call"}
    for place, item in enumerate(items):
        match item.kind:
            case "function_call":
                call = RequestedCall(id=item.call_id, name=item.name, arguments=item.arguments)
                before = found.pop() if found and isinstance(found[-1], AssistantMessage) else AssistantMessage()
                assert isinstance(before, AssistantMessage)  # noqa: S101  # for mypy
                found.append(before.model_copy(update={"tool_calls": (*before.tool_calls, call)}))
            case "function_call_output":
                name = names.get(item.call_id, "")
                found.append(ToolMessage(tool_call_id=item.call_id, name=name, content=output_text_of(item, place)))
            case "message":
                found.append(_message(item, place))
    return found


def output_text_of(item: InputItem, place: int) -> str:
    """Return what the client's own tool has returned. Raises Problem for anything but text."""
    return parts_of(item.output, "tool", f"input[{place}].output").text


def _message(item: InputItem, place: int) -> Message:
    said = parts_of(item.content, item.role or "", f"input[{place}].content")
    match item.role:
        case "assistant":
            return AssistantMessage(content=said.text, refusal=said.refusal)
        case "user":
            return UserMessage(content=said.text, images=tuple(said.images))
        case _:
            return SystemMessage(content=said.text)


def in_input(why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Problem:
    """Return the problem with the input of a request."""
    return Problem(status, why, code="invalid-input", param="input")


# --- how they are listed again ----------------------------------------------------------------------------------------


def as_listed(item: InputItem) -> Item:
    """Return an item as it is listed again, without the id that it is given there if it has none."""
    given = item.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    given["type"] = item.kind
    match item.kind:
        case "message":
            return {"status": "completed", **given, "content": _parts(item)}
        case "function_call_output":
            return {"status": "completed", **given, "output": item.output or ""}
        case "function_call":
            return {"status": "completed", **given, "arguments": item.arguments}
        case _:
            return {"summary": [], **given}


def _parts(item: InputItem) -> list[dict[str, Any]]:
    is_models = item.role == "assistant"
    given = item.content if isinstance(item.content, list) else [{"type": "text", "text": item.content or ""}]
    return [_part(part, is_models=is_models) for part in given]


def _part(part: dict[str, Any], *, is_models: bool) -> dict[str, Any]:
    if part.get("type") == "refusal":
        return part
    if part.get("type") in IMAGES:
        # Without what it shows: large images are kept once, with the messages of the run.
        return {"type": "input_image", "detail": part.get("detail") or "auto", "image_url": None, "file_id": None}
    if is_models:
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return {**part, "type": "input_text"}


def listed(run_id: str, given: Sequence[Item] | str) -> list[Item]:
    """Return the items of one request, each with an id that is always the same."""
    items = [as_listed(InputItem(role="user", content=given))] if isinstance(given, str) else given
    return [{"id": f"{_LETTERS[item['type']]}_{run_id}_in{position}", **item} for position, item in enumerate(items)]


_LETTERS: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
