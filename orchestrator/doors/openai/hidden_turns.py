"""The turns that a stateless client never saw: what the fleet's tools did before its own were called.

The client sends back only its own call and its result. The run in which they were asked for is found by the call's id,
and put where it was, so that the model neither forgets nor repeats what it has had done.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.openai.openai_records import handed_over_id, run_of_handed_over
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.run.value import Run


async def with_hidden_turns(door: Door, grant: Grant, messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with the runs that its calls came from, as far as they are still stored."""
    found: list[Message] = []
    renamed: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            run = await _origin(door, grant, message)
            if run is not None:
                renamed |= {handed_over_id(call): call.requested_id for call in run.handed_over}
                _forget_what_it_said(found, run)
                found += _turns(run)
                continue
        if isinstance(message, ToolMessage) and message.tool_call_id in renamed:
            found.append(message.model_copy(update={"tool_call_id": renamed[message.tool_call_id]}))
            continue
        found.append(message)
    return found


def _forget_what_it_said(found: list[Message], run: Run) -> None:
    """Take away what the run's turns say, too, where each turn's text came back as a message of its own."""
    said = {reply.content for reply in run.replies}
    while found and isinstance(last := found[-1], AssistantMessage) and not last.tool_calls and last.content in said:
        found.pop()


async def _origin(door: Door, grant: Grant, message: AssistantMessage) -> Run | None:
    run_id = run_of_handed_over(message.tool_calls[0].id)
    if run_id is None:
        return None
    try:
        run = await door.orchestrator.get(run_id)
    except RunNotFound:
        return None
    return run if run.terms.tenant == grant.tenant and run.handed_over else None


def _turns(run: Run) -> list[Message]:
    """Return what a run added to its conversation, without the answers that its caller gives."""
    answers = {call.requested_id for call in run.handed_over}
    added = run.messages[run.began_with :]
    last = max(position for position, message in enumerate(added) if isinstance(message, AssistantMessage))
    return [
        message
        for position, message in enumerate(added)
        if not (position > last and isinstance(message, ToolMessage) and message.tool_call_id in answers)
    ]
