"""The events of a streamed response: a fold over the stored events of its run, and over a reply that is being written.

**Each event has one number for ever**, whoever asks, whenever, on whichever server. The numbers of what is stored
follow from what is stored, from 0 and without a gap; a reply that is still being written is cut into the same deltas
that it will have once it is stored (`pieces.py`). Where a model's text is lost after some of it was shown, nobody can
know how much that was, so the numbers leap over all that it can have been:

| what has happened | the next number |
|---|---|
| a reply was begun anew n times, its connection lost | a million times n after the event before it |
| another server took over, or the run ended, in the midst of a reply | a milliard after the event before it |

The message is then added anew with the same id, at a place of its own; of its first half nothing counts. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from toolfleet.orchestrator.doors.openai.responses.body import response_of
from toolfleet.orchestrator.doors.openai.responses.output import (
    Item,
    items_at_end,
    items_of_reply,
    message_id,
    opened_message,
    opened_reasoning,
    reasoning_id,
    reasoning_item,
    says_one_value,
    text_part,
    thoughts_part,
)
from toolfleet.orchestrator.doors.openai.responses.pieces import Cutter, pieces_of
from toolfleet.orchestrator.run.events import (
    CallsSent,
    ModelReplied,
    RunAdopted,
    RunEvent,
    RunResumed,
    RunStarted,
    RunStopped,
)
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import TextArrived, ThoughtArrived
from toolfleet.orchestrator.run.value import Run

Event = dict[str, Any]

ATTEMPT: Final = 1_000_000
"""How far apart the numbers of two attempts at one reply are: more than any reply has pieces."""

LOST: Final = 1_000_000_000
"""How far the numbers leap after a reply whose attempts nobody can count."""


OUTPUT: Final = "output_text"
REASONING: Final = "reasoning_text"

Came = TextArrived | ThoughtArrived
"""A piece of a reply that is being written."""


class Diverged(Exception):
    """What was streamed of a reply is not how the reply begins that was stored."""


class _OpenText:
    """An item of text, thought or said, of which the beginning has been told."""

    def __init__(self, item_id: str, index: int, kind: str) -> None:
        self.item_id = item_id
        self.index = index
        self.kind = kind
        """What its events are called."""
        self.told: list[str] = []
        self.cutter = Cutter()
        self.is_begun = False
        """Whether its part of text has been told of."""
        self.is_whole = False


class ResponseEvents:
    """The events of one response, in order. `run` is the run as far as it was told."""

    def __init__(self, started: RunStarted) -> None:
        self.run = Run.start(started)
        self.last_number = -1
        self._place = 0
        """Where the next item stands."""
        self._thoughts: _OpenText | None = None
        self._open: _OpenText | None = None
        self._heard = 0
        """How much has been taken of what is live."""
        self._attempt = 0
        self._before = (-1, 0)
        """The last number, and the next place, before the reply that is due."""
        self._is_elsewhere = False
        """Whether another orchestrator writes its replies, so that none of them is seen coming here."""

    def begun(self) -> list[Event]:
        """Return the events that every response begins with."""
        is_queued = bool(self.run.asked_as.get("background"))
        kinds = ["created", "queued", "in_progress"] if is_queued else ["created", "in_progress"]
        statuses = {"created": "queued", "queued": "queued"} if is_queued else {}
        found = [
            self._event(f"response.{kind}", response=response_of(self.run, status=statuses.get(kind))) for kind in kinds
        ]
        self._settle()
        return found

    def heard(self, turn: int, attempt: int, came_since: Callable[[int], Sequence[Came]]) -> list[Event]:
        """Return the events of a reply that is being written, as far as it has come since this was last asked.

        `turn` and `attempt` say which one it is, `came_since(n)` what of it came after the first n pieces.
        """
        is_due = self.run.state is State.THINKING and turn == self.run.turn + 1 and attempt >= self._attempt
        if not is_due or self._is_elsewhere or says_one_value(self.run):
            return []
        if attempt > self._attempt:
            self._begin_anew(attempt)
        found: list[Event] = []
        for came in came_since(self._heard):
            self._heard += 1
            if came.text:
                found += self._thought(came.text) if isinstance(came, ThoughtArrived) else self._said(came.text)
        return found

    def _thought(self, text: str) -> list[Event]:
        found: list[Event] = []
        if self._thoughts is None:
            item = opened_reasoning(reasoning_id(self.run.run_id, self.run.turn + 1))
            added, self._thoughts = self._added(item, REASONING)
            found = [added, self._text_added(self._thoughts)]
        return [*found, *self._deltas(self._thoughts, self._thoughts.cutter.add(text))]

    def _said(self, text: str) -> list[Event]:
        found: list[Event] = []
        if self._open is None:
            if self._thoughts is not None:  # nothing follows of them
                found += self._deltas(self._thoughts, self._thoughts.cutter.end())
                thoughts = reasoning_item(self._thoughts.item_id, "".join(self._thoughts.told))
                found += self._item(thoughts, self._thoughts)
            item = opened_message(message_id(self.run.run_id, self.run.turn + 1))
            added, self._open = self._added(item, OUTPUT)
            found += [added, self._text_added(self._open)]
        return [*found, *self._deltas(self._open, self._open.cutter.add(text))]

    def take(self, event: RunEvent) -> list[Event]:
        """Return the events that a stored event brings. Raises IllegalTransition, Diverged."""
        before, self.run = self.run.state, self.run.on(event)
        found: list[Event] = []
        if isinstance(event, ModelReplied):
            found += self._replied(event)
        elif isinstance(event, RunAdopted | RunStopped) and before is State.THINKING:
            self._leap(LOST, places=1)
            self._settle()
        self._is_elsewhere |= isinstance(event, RunAdopted)
        if isinstance(event, RunResumed) or (isinstance(event, CallsSent) and event.awaiting_approval):
            # That a person has to decide is told by the response itself.
            found.append(self._event("response.in_progress", response=response_of(self.run)))
            self._settle()
        if self.run.state.is_terminal and not before.is_terminal:
            found += [told for item in items_at_end(self.run) for told in self._whole(item)]
            found.append(self._event(_end_of(self.run), response=response_of(self.run)))
            self._settle()
        return found

    # --- one reply ------------------------------------------------------------------------------------------------

    def _replied(self, event: ModelReplied) -> list[Event]:
        """Return what is still to be told of a reply, now that all of it is stored."""
        if event.restarts > self._attempt:
            self._begin_anew(event.restarts)
        items = items_of_reply(self.run, self.run.turn, event.message)
        kinds = {item["type"] for item in items}
        if self._attempt > event.restarts or (self._open and "message" not in kinds):
            raise Diverged
        if self._thoughts and "reasoning" not in kinds:
            raise Diverged
        found: list[Event] = []
        for item in items:
            found += self._item(item, self._thoughts if item["type"] == "reasoning" else self._open)
        self._settle()
        return found

    def _begin_anew(self, attempt: int) -> None:
        self._attempt, self._thoughts, self._open, self._heard = attempt, None, None, 0
        self._leap(ATTEMPT * attempt, places=attempt)

    def _leap(self, numbers: int, *, places: int) -> None:
        self.last_number, self._place = self._before[0] + numbers, self._before[1] + places

    def _settle(self) -> None:
        """Note where the next reply begins."""
        self._before = (self.last_number, self._place)
        self._attempt, self._thoughts, self._open, self._heard = 0, None, None, 0

    # --- items ----------------------------------------------------------------------------------------------------

    def _whole(self, item: Item) -> list[Event]:
        """Return the events of an item that is whole before any of it is told."""
        return self._whole_call(item) if item["type"] == "function_call" else self._item(item, None)

    def _item(self, item: Item, begun: _OpenText | None) -> list[Event]:
        """Return what is still to be told of a message or of thoughts, if anything is. Raises Diverged."""
        if begun is not None and begun.is_whole:
            [part] = item["content"]
            if part["text"] != "".join(begun.told):
                raise Diverged
            return []
        found: list[Event] = []
        if begun is None:
            kind, opened = (REASONING, opened_reasoning) if item["type"] == "reasoning" else (OUTPUT, opened_message)
            added, begun = self._added(opened(item["id"]), kind)
            found.append(added)
        for index, part in enumerate(item["content"]):
            of_part = self._refusal if part["type"] == "refusal" else self._text
            found += of_part(begun, index, part)
        begun.is_whole = True
        return [*found, self._event("response.output_item.done", output_index=begun.index, item=item)]

    def _text(self, begun: _OpenText, index: int, part: dict[str, Any]) -> list[Event]:
        found = [] if begun.is_begun else [self._text_added(begun)]
        pieces = pieces_of(part["text"])
        if index or pieces[: len(begun.told)] != begun.told:
            raise Diverged
        more: dict[str, Any] = {"logprobs": []} if begun.kind == OUTPUT else {}
        return [
            *found,
            *self._deltas(begun, pieces[len(begun.told) :]),
            self._in(begun, 0, f"response.{begun.kind}.done", text=part["text"], **more),
            self._in(begun, 0, "response.content_part.done", part=part),
        ]

    def _refusal(self, message: _OpenText, index: int, part: dict[str, Any]) -> list[Event]:
        if message.is_begun and not index:
            raise Diverged
        return [
            self._in(message, index, "response.content_part.added", part={**part, "refusal": ""}),
            self._in(message, index, "response.refusal.delta", delta=part["refusal"]),
            self._in(message, index, "response.refusal.done", refusal=part["refusal"]),
            self._in(message, index, "response.content_part.done", part=part),
        ]

    def _whole_call(self, item: Item) -> list[Event]:
        place = {"item_id": item["id"], "output_index": self._place}
        begun = {**item, "arguments": "", "status": "in_progress"}
        arguments = item["arguments"]
        found = [
            self._event("response.output_item.added", output_index=self._place, item=begun),
            self._event("response.function_call_arguments.delta", **place, delta=arguments),
            self._event("response.function_call_arguments.done", **place, arguments=arguments),
            self._event("response.output_item.done", output_index=self._place, item=item),
        ]
        self._place += 1
        return found

    def _added(self, item: Item, kind: str) -> tuple[Event, _OpenText]:
        begun = _OpenText(item["id"], self._place, kind)
        self._place += 1
        return self._event("response.output_item.added", output_index=begun.index, item=item), begun

    def _text_added(self, begun: _OpenText) -> Event:
        begun.is_begun = True
        part = text_part("") if begun.kind == OUTPUT else thoughts_part("")
        return self._in(begun, 0, "response.content_part.added", part=part)

    def _deltas(self, begun: _OpenText, pieces: Sequence[str]) -> list[Event]:
        begun.told += pieces
        more: dict[str, Any] = {"logprobs": []} if begun.kind == OUTPUT else {}
        return [self._in(begun, 0, f"response.{begun.kind}.delta", delta=piece, **more) for piece in pieces]

    def _in(self, message: _OpenText, index: int, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=message.item_id, output_index=message.index, content_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self.last_number += 1
        return {"type": kind, "sequence_number": self.last_number, **fields}


def _end_of(run: Run) -> str:
    """Return what a response ends with. OpenAI has no event for one that was cancelled: its status says so."""
    if run.state is not State.DONE:
        return "response.failed"
    return "response.incomplete" if response_of(run)["status"] == "incomplete" else "response.completed"
