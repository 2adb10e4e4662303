"""The conversation that a request goes on with: its items, those that they refer to, and the response before it.

Reads stored responses; what the items say is decided in `items`.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from toolfleet.messages import Message, SystemMessage, ToolMessage
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.openai.hidden_turns import with_hidden_turns
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id
from toolfleet.orchestrator.doors.openai.responses.body import PREFIX
from toolfleet.orchestrator.doors.openai.responses.items import (
    InputItem,
    as_listed,
    in_input,
    listed,
    messages_of,
    must_be_taken,
    must_match,
    output_text_of,
)
from toolfleet.orchestrator.doors.openai.responses.output import Item, output_of, run_of_item
from toolfleet.orchestrator.doors.openai.responses.request import ResponseRequest
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.run.value import Run


class Conversation(NamedTuple):
    """What the model is given, and what the request gave as it is listed again."""

    messages: list[Message]
    given: list[Item] | str


async def conversation_of(door: Door, grant: Grant, asked: ResponseRequest) -> Conversation:
    """Return the conversation of a request. Raises Problem, RunNotFound for a response before it that is not there."""
    items = [InputItem(role="user", content=asked.input)] if isinstance(asked.input, str) else asked.input
    must_be_taken(items)
    items = [await _resolved(door, grant, item) for item in items]
    before = None
    if asked.previous_response_id is not None:
        before = await stored_response(door, grant, asked.previous_response_id)
        if not before.state.is_terminal:
            raise Problem(HTTPStatus.CONFLICT, f"{PREFIX}{before.run_id} is in progress")
    must_match(items, [] if before is None else map(handed_over_id, before.handed_over))
    said = await with_hidden_turns(door, grant, messages_of(items))
    if before is not None:
        said = _after(before, items, said)
    instructions = [] if asked.instructions is None else [SystemMessage(content=asked.instructions)]
    return Conversation(
        [*instructions, *said], asked.input if isinstance(asked.input, str) else [as_listed(each) for each in items]
    )


async def stored_response(door: Door, grant: Grant, response_id: str) -> Run:
    """Return the run of a response.

    Raises RunNotFound for one of another tenant or that was not to be stored, as for one that is not there.
    """
    missing = RunNotFound(f"no response {response_id} is stored")
    if not response_id.startswith(PREFIX):
        raise missing
    try:
        run = await door.orchestrator.get(response_id.removeprefix(PREFIX))
    except RunNotFound:
        raise missing from None
    if run.terms.tenant != grant.tenant or run.asked_as.get("store") is False:
        raise missing
    return run


async def _resolved(door: Door, grant: Grant, item: InputItem) -> InputItem:
    """Return an item, or the one that it refers to. Raises Problem."""
    if item.kind != "item_reference":
        return item
    item_id = item.id or ""
    run_id = run_of_item(item_id)
    try:
        run = await stored_response(door, grant, f"{PREFIX}{run_id}") if run_id else None
    except RunNotFound:
        run = None
    found = next((each for each in output_of(run) if each["id"] == item_id), None) if run else None
    if found is None:
        why = f"Item with id '{item_id}' not found. It is no item that a stored response has put out: send it whole."
        raise in_input(why, HTTPStatus.NOT_FOUND)
    return InputItem.model_validate(found)


def _after(before: Run, items: Sequence[InputItem], said: Sequence[Message]) -> list[Message]:
    """Return a conversation that goes on: what was said before, with answers to the calls that it ended with."""
    answers = {
        item.call_id: output_text_of(item, place)
        for place, item in enumerate(items)
        if item.kind == "function_call_output"
    }
    open_calls = {handed_over_id(call): call.requested_id for call in before.handed_over}
    by_request = {requested_id: answers[call_id] for call_id, requested_id in open_calls.items()}
    past = [
        message.model_copy(update={"content": by_request[message.tool_call_id]})
        if isinstance(message, ToolMessage) and message.tool_call_id in by_request
        else message
        for message in before.messages[_own_instructions(before) :]
    ]
    return [*past, *(each for each in said if not isinstance(each, ToolMessage) or each.tool_call_id not in open_calls)]


def _own_instructions(run: Run) -> int:
    """Return how many messages at the beginning of a run are its own instructions: these do not go on."""
    return int(isinstance(run.asked_as.get("instructions"), str))


async def input_items(door: Door, grant: Grant, run: Run) -> list[Item]:
    """Return the items that a response was given, with those of the stored responses that it goes on from.

    The oldest comes first.
    """
    from_there = run
    found = _own_items(run)
    while isinstance(earlier := from_there.asked_as.get("previous_response_id"), str):
        try:
            from_there = await stored_response(door, grant, earlier)
        except RunNotFound:
            break  # it was deleted, or is kept no longer
        found = [*_own_items(from_there), *output_of(from_there), *found]
    return found


def _own_items(run: Run) -> list[Item]:
    given: Any = run.asked_as.get("input", "")
    return listed(run.run_id, given) if given else []
