"""A conversation as the planner reads it: which questions, which rounds of calls, which results, which open tickets.

Pure; computed anew from each request, so the planner keeps no state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.orchestrator.models.protocol import OfferedTool

TASK_RESULT = "task_result"
TASK_CANCEL = "task_cancel"
_STILL_OPEN = frozenset({"submitted", "queued", "running"})


@dataclass(frozen=True, slots=True)
class Round:
    """One reply with calls, and the contents of the results that followed, by call id."""

    reply: AssistantMessage
    results: Mapping[str, str]

    def answered(self) -> Iterator[tuple[RequestedCall, str]]:
        """Yield the calls that have a result, with it."""
        for call in self.reply.tool_calls:
            if call.id in self.results:
                yield call, self.results[call.id]

    def asks_only_for(self, name: str) -> bool:
        """Return whether all its calls are of this tool."""
        return all(call.name == name for call in self.reply.tool_calls)


class Conversation:
    """One request: its messages and the tools on offer."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[OfferedTool]) -> None:
        self.messages = tuple(messages)
        self.tools = {tool.name: tool for tool in tools}

    def offers(self, *names: str) -> bool:
        """Return whether all of these tools may be called."""
        return all(self.wire_name(name) in self.tools for name in names)

    def wire_name(self, name: str) -> str:
        """Return the offered name of a tool that the user calls by its catalog name; `name` itself if none fits."""
        return legal_name(name) if name not in self.tools and legal_name(name) in self.tools else name

    def last_question(self, is_meant: Callable[[str], bool]) -> int | None:
        """Return the index of the last user message for which `is_meant` holds."""
        return next(
            (
                index
                for index in reversed(range(len(self.messages)))
                if isinstance(message := self.messages[index], UserMessage) and is_meant(message.content)
            ),
            None,
        )

    def rounds_since(self, index: int) -> list[Round]:
        """Return the rounds of calls after the message at `index`, in order."""
        rounds: list[Round] = []
        results: dict[str, str] = {}
        for message in self.messages[index + 1 :]:
            if isinstance(message, AssistantMessage) and message.tool_calls:
                results = {}
                rounds.append(Round(message, results))
            elif isinstance(message, ToolMessage):
                results[message.tool_call_id] = message.content
        return rounds

    def said_since(self, index: int) -> list[str]:
        """Return what came in as user messages after the message at `index`."""
        return [message.content for message in self.messages[index + 1 :] if isinstance(message, UserMessage)]


def open_tickets(rounds: Sequence[Round]) -> list[str]:
    """The ids of submitted tasks whose end no `task_result` or `task_cancel` has shown yet, in order of submission."""
    tickets: dict[str, None] = {}
    for call, content in (answered for each in rounds for answered in each.answered()):
        answer = as_json_object(content)
        still_open = answer.get("status") in _STILL_OPEN
        if call.name in {TASK_RESULT, TASK_CANCEL}:
            if not still_open:
                tickets.pop(str(as_json_object(call.arguments).get("task_id")), None)
        elif still_open and "task_id" in answer:
            tickets[str(answer["task_id"])] = None
    return list(tickets)


def as_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`; empty if there is none."""
    value = as_json(text)
    return value if isinstance(value, dict) else {}


def as_json(text: str) -> Any:
    """Return the JSON value in `text`; None if there is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def asking(*calls: tuple[str, Mapping[str, Any] | str], text: str = "") -> AssistantMessage:
    """Return a reply with these calls, by name and arguments (an object, or text to be sent as it is)."""
    requested = [
        RequestedCall(id=f"{position}", name=name, arguments=_arguments_text(arguments))
        for position, (name, arguments) in enumerate(calls)
    ]
    return AssistantMessage(content=text, tool_calls=tuple(requested))


def fetching(tickets: Sequence[str], *, timeout_ms: int = 30_000) -> AssistantMessage:
    """Return a reply that waits for the results of these tickets."""
    return asking(*((TASK_RESULT, {"task_id": id_, "block": True, "timeout_ms": timeout_ms}) for id_ in tickets))


def cancelling(tickets: Sequence[str]) -> AssistantMessage:
    """Return a reply that cancels these tickets."""
    return asking(*((TASK_CANCEL, {"task_id": id_}) for id_ in tickets))


def _arguments_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
