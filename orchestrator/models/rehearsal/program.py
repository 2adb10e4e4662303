"""Replies to a user message that says outright which tools to call: a small language for tests and demonstrations.

    call NAME {json}        call a tool with these arguments; several calls in one step go into one reply
    call NAME `text`        the same with arguments sent as they are, malformed JSON for instance
    say "text"              text beside the step's calls
    fetch                   wait for every open ticket ("task submitted") with task_result until none is open
    cancel                  cancel every open ticket with task_cancel
    then                    ends a step: what follows is asked for after its results have come back

Other words are ignored: `call add {"a": 1, "b": 2} and call add {"a": 3, "b": 4} then call report {} then fetch` takes
three turns or more. When all steps are done, the answer quotes every result as `NAME: content`, one line each. An
unknown NAME is called all the same. The last user message that holds a program counts; what users say after it (a
result delivered late, for instance) is quoted too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator.models.rehearsal.conversation import (
    TASK_CANCEL,
    TASK_RESULT,
    Conversation,
    Round,
    asking,
    cancelling,
    fetching,
    open_tickets,
)

# A ticket still open after so many waits will not close; better an answer that says so than a run without end.
MAX_FETCHES = 200
_WORD = re.compile(r"\b(call|say|fetch|cancel|then)\b")
_NAME = re.compile(r"\s+([^\s`{]+)\s*")
_VERBATIM = re.compile(r"`([^`]*)`")
_SPACE = re.compile(r"\s*")
_JSON = json.JSONDecoder()


class OpenTickets(StrEnum):
    """What a step does with open tickets."""

    FETCH = "fetch"
    """Wait for the results of all open tickets."""
    CANCEL = "cancel"
    """Cancel all open tickets."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call as the program writes it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Say:
    """Text beside the calls."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """What goes into one reply (a step that fetches may take several)."""

    calls: tuple[CallStep, ...] = ()
    text: str = ""
    tickets: OpenTickets | None = None


def reply(conversation: Conversation) -> AssistantMessage | None:
    """Return the program's next reply; None if no user message holds a program."""
    start = conversation.last_question(lambda text: any(step.calls for step in parsed(text)))
    if start is None:
        return None
    question = conversation.messages[start]
    assert isinstance(question, UserMessage)  # noqa: S101  # last_question finds nothing else
    rounds = conversation.rounds_since(start)
    due = _due(parsed(question.content), rounds, conversation)
    return due or _answer(rounds, conversation.said_since(start))


def parsed(text: str) -> list[Step]:
    """Return the steps of a program; empty for a text without any."""
    steps = [Step()]
    for token in _tokens(text):
        last = steps[-1]
        match token:
            case "then":
                steps.append(Step())
            case CallStep():
                steps[-1] = Step((*last.calls, token), last.text, last.tickets)
            case Say():
                steps[-1] = Step(last.calls, last.text + token.text, last.tickets)
            case _:
                steps[-1] = Step(last.calls, last.text, OpenTickets(token))
    return [step for step in steps if step != Step()]


def _tokens(text: str) -> Iterator[CallStep | Say | str]:
    position = 0
    while found := _WORD.search(text, position):
        position = found.end()
        match found[1]:
            case "call":
                call, position = _call_at(text, position)
                if call is not None:
                    yield call
            case "say":
                said, position = _json_at(text, _after_space(text, position))
                if said is not None:
                    yield Say(str(json.loads(said)))
            case word:
                yield word


def _call_at(text: str, position: int) -> tuple[CallStep | None, int]:
    """Return the call whose name begins at `position`, and where to read on. Without arguments it is ordinary prose."""
    name = _NAME.match(text, position)
    if name is None:
        return None, position
    if verbatim := _VERBATIM.match(text, name.end()):
        return CallStep(name[1], verbatim[1]), verbatim.end()
    arguments, end = _json_at(text, name.end())
    return (None, position) if arguments is None else (CallStep(name[1], arguments), end)


def _json_at(text: str, position: int) -> tuple[str | None, int]:
    """Return the JSON text that begins at `position`, exactly as it is written, and its end."""
    try:
        _, end = _JSON.raw_decode(text, position)
    except ValueError:
        return None, position
    return text[position:end], end


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return position if found is None else found.end()


def _due(steps: Sequence[Step], rounds: Sequence[Round], conversation: Conversation) -> AssistantMessage | None:
    """Return the reply of the first step that is not done; None when all are."""
    done = 0
    for step in steps:
        if step.calls or step.text:
            if done == len(rounds):
                named = [(conversation.wire_name(call.name), call.arguments) for call in step.calls]
                return asking(*named, text=step.text)
            done += 1
        if step.tickets is OpenTickets.FETCH:
            done = _after(rounds, done, TASK_RESULT)
            tickets = open_tickets(rounds[:done])
            if tickets and done == len(rounds) < MAX_FETCHES:
                return fetching(tickets)
        if step.tickets is OpenTickets.CANCEL:
            tickets = open_tickets(rounds[:done])
            if tickets and done == len(rounds):
                return cancelling(tickets)
            done = _after(rounds, done, TASK_CANCEL)
    return None


def _after(rounds: Sequence[Round], done: int, name: str) -> int:
    """Return the number of rounds done once those that only call `name` are over."""
    while done < len(rounds) and rounds[done].asks_only_for(name):
        done += 1
    return done


def _answer(rounds: Sequence[Round], said_later: Sequence[str]) -> AssistantMessage:
    lines = ["I am the rehearsal model. These are the results:"]
    lines += [f"{call.name}: {content}" for each in rounds for call, content in each.answered()]
    lines += [f"then I was told: {text}" for text in said_later]
    return AssistantMessage(content="\n".join(lines))
